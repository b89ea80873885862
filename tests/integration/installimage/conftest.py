# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers of the lab in their rescue, and a controller that installs them as a user does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rescue.conftest import Run
from tests.integration.robot.conftest import Account

IMAGE = "Debian-1200-bookworm-amd64-base.tar.zst"
#: A boot of a container on a machine that does a lot else.
PATIENCE = 240


class Controller:
    """Runs Ansible on dedicated servers from a folder of its own."""

    def __init__(self, lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.account = Account(lab, folder)
        self.logs, self.pins = folder / "logs", folder / "pins"
        self.address: dict[str, str] = {}
        self._fingerprint = ""

    def machine(self, name: str, *sizes: str, **fields: object) -> None:
        """A new dedicated server with empty disks of these sizes, booted into its rescue."""
        disks = [{"size": size, "kind": "nvme"} for size in sizes or ("3G",)]
        self.account.add(name, name=name, disks=disks, powered=False, **fields)
        self.address[name] = self.account.row(name)["address"]
        self.arm(name)
        self.account.robot("POST", f"/reset/{self.number(name)}", {"type": "power"})

    def number(self, name: str) -> int:
        """The server number."""
        return self.account.numbers[name]

    def arm(self, name: str) -> None:
        """Activate the rescue for the next boot."""
        if not self._fingerprint:
            public = self.account.key.with_suffix(".pub").read_text()
            answer = self.account.robot("POST", "/key", {"name": self.folder.name, "data": public})
            self._fingerprint = answer["key"]["fingerprint"]
        form = {"os": "linux", "authorized_key[]": [self._fingerprint]}
        self.account.robot("POST", f"/boot/{self.number(name)}/rescue", form)

    def devices(self, name: str) -> list[str]:
        """The disks by their WWNs."""
        return [disk["wwn"] for disk in self.account.row(name)["disks"]]

    def digests(self, name: str) -> list[str]:
        """What the disks hold now, a digest for each."""
        answer = self.lab.control("GET", f"/dedicated/{self.number(name)}/disks", timeout=120)
        return [disk["sha256"] for disk in answer["disks"]]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the user who runs Ansible."""
        return {
            **os.environ,
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),
            "ANSIBLE_HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def line(self, name: str, module: str, *flags: str, **options: object) -> list[str]:
        """The command line that runs one of our modules on a machine."""
        inventory = self.folder / "inventory"
        inventory.write_text(
            "".join(f"{host} ansible_host={address}\n" for host, address in self.address.items())
            + "[all:vars]\nansible_user=root\nansible_python_interpreter=/usr/bin/python3\n"
            f"ansible_ssh_private_key_file={self.account.key}\n"
        )
        given = {"known_hosts_dir": str(self.pins), **options}
        module = f"kubenode.provision.{module}"
        return ["ansible", name, "-i", str(inventory), "-m", module, "-a", json.dumps(given), *flags]

    def run(self, name: str, module: str, *flags: str, **options: object) -> Run:
        """Run one of our modules on a machine."""
        process = subprocess.run(
            self.line(name, module, *flags, **options),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        return Run(process.returncode, process.stdout, process.stderr)

    def options(self, name: str, **more: object) -> dict:
        """Options of robot_installimage for a machine."""
        given = {
            "image": {"name": IMAGE},
            "root_devices": self.devices(name)[:1],
            "log_dir": str(self.logs),
            "rescue_timeout": PATIENCE,
            "timeout": PATIENCE,
        }
        return {**given, **more}

    def install(self, name: str, *flags: str, **more: object) -> Run:
        """Run robot_installimage on a machine."""
        return self.run(name, "robot_installimage", *flags, **self.options(name, **more))

    def boot(self, name: str, installed: Run, **more: object) -> Run:
        """Leave the rescue and prove the new system, which must show the host keys of its installation."""
        given = {
            "previous_boot_id": installed["boot_id"],
            "host_keys": installed["host_keys"],
            "hostname": name,
            "command": "installimage",
            "timeout": PATIENCE,
            "boot_state": installed["boot_state"],
            "installation": installed["installation"],
            "written": installed["written"],
        }
        return self.run(name, "machine_boot", **{**given, **more})

    def ssh(self, name: str, script: str) -> str:
        """What a script prints on a machine; the user's own SSH, apart from Ansible's."""
        options = [
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
        ]
        line = ["ssh", "-F", "none", *options, "-i", str(self.account.key), f"root@{self.address[name]}", script]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout

    def log(self, name: str, which: str = "") -> str:
        """A log of the installation on the controller."""
        return (self.logs / name / ("installimage%s.log" % (which and f".{which}"))).read_text()

    def blank(self, name: str) -> bool:
        """Whether the rescue finds nothing on any disk of the machine."""
        facts = self.run(name, "machine_disks")
        assert not facts.failed, facts.printed
        return [disk["holds"] for disk in facts["disks"]] == [[]] * len(self.devices(name))

    def until(self, condition, what: str) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.2)

    def close(self) -> None:
        """Delete what was made."""
        for number in self.account.numbers.values():
            self.lab.control("DELETE", f"/dedicated/{number}", timeout=60)


def fields_of(text: str) -> dict[str, str]:
    """``key=value`` lines."""
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


@pytest.fixture
def controller(lab_nspawn, tmp_path) -> Iterator[Controller]:
    """A controller that the lab's Robot knows, and no machines yet."""
    controller = Controller(lab_nspawn, tmp_path)
    yield controller
    controller.close()
