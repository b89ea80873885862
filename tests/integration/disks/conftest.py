# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers of the lab in their rescue, and a controller that asks for their disks as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from tests.integration.rescue.conftest import Run


class Server:
    """One dedicated server, and its owner's controller."""

    def __init__(self, lab, folder: Path, **spec: object) -> None:
        self.lab, self.folder = lab, folder
        self.key, self.pins, self.claim = folder / "key", folder / "pins", folder / "claims" / "node-1.json"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        (machine,) = lab.dedicated(powered=False, **spec)
        self.number, self.address, self.specs = machine["number"], machine["address"], machine["disks"]
        public = self.key.with_suffix(".pub").read_text()
        self.fingerprint = self.robot("POST", "/key", {"name": f"disks-{self.number}", "data": public})["key"][
            "fingerprint"
        ]
        (folder / "inventory").write_text(
            f"node-1 ansible_host={self.address} ansible_user=root ansible_python_interpreter=/usr/bin/python3"
            f" ansible_ssh_private_key_file={self.key}\n"
        )
        self.boots = 0

    def robot(self, method: str, path: str, form: dict | None = None) -> dict:
        """One request to Robot."""
        credentials = (self.lab.robot_user, self.lab.robot_password)
        answer = requests.request(method, self.lab.robot_endpoint + path, data=form, auth=credentials, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else {}

    def boot_rescue(self, seconds: float = 200) -> None:
        """Boot into the rescue, from whatever there is, and wait until it answers."""
        self.robot("POST", f"/boot/{self.number}/rescue", {"os": "linux", "authorized_key[]": self.fingerprint})
        before = self.boot_id() if self.boots else ""
        self.robot("POST", f"/reset/{self.number}", {"type": "hw" if self.boots else "power"})
        self.boots += 1
        deadline = time.monotonic() + seconds
        while (now := self.boot_id()) in ("", before):
            assert time.monotonic() < deadline, f"no rescue within {seconds} s"
            time.sleep(0.3)
        assert self.ssh("hostname") == "rescue\n", now

    def boot_id(self) -> str:
        """Of the system that answers; empty when none does."""
        return self._ssh("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def ssh(self, script: str) -> str:
        """What a script prints in the rescue."""
        done = self._ssh(script)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    def _ssh(self, script: str) -> subprocess.CompletedProcess[str]:
        options = [
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
        ]
        line = ["ssh", "-Fnone", *options, "-oConnectTimeout=5", "-i", str(self.key), f"root@{self.address}", script]
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)

    def digests(self) -> list[str]:
        """SHA-256 of the content of each disk now, in the order of its description."""
        found = self.lab.control("GET", f"/dedicated/{self.number}/disks", timeout=200)["disks"]
        return [disk["sha256"] for disk in found]

    def line(self, module: str, *flags: str, **options: object) -> list[str]:
        """The command line that runs one of our modules on the machine."""
        given = {"known_hosts_dir": str(self.pins), "rescue_timeout": 200, **options}
        line = ["ansible", "node-1", "-i", str(self.folder / "inventory"), "-m", f"kubenode.provision.{module}"]
        return [*line, "-a", json.dumps(given), *flags]

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

    def disks(self, *flags: str, **options: object) -> Run:
        """Run machine_disks."""
        process = subprocess.run(
            self.line("machine_disks", *flags, **{"claim_file": str(self.claim), **options}),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return Run(process.returncode, process.stdout, process.stderr)

    def ready(self, *flags: str, **options: object) -> Run:
        """Run machine_disks with state=ready."""
        return self.disks(*flags, state="ready", **options)

    def close(self) -> None:
        """Take it away."""
        self.lab.control("DELETE", f"/dedicated/{self.number}")
        self.robot("DELETE", f"/key/{self.fingerprint}")


def by_serial(run: Run) -> dict[str, dict]:
    """The facts of the disks by their serial numbers."""
    return {disk["serial"]: disk for disk in run["disks"]}


def held(disk: dict) -> list[str]:
    """The kinds of what a disk holds, in order."""
    return [entry["kind"] for entry in disk["holds"]]


ServerFactory = Callable[..., Server]


def _factory(lab, folder: Path, seconds: float) -> Iterator[ServerFactory]:
    with ExitStack() as stack:

        def make(**spec: object) -> Server:
            server = Server(lab, folder, **spec)
            stack.callback(server.close)
            server.boot_rescue(seconds)
            return server

        yield make


@pytest.fixture
def server(lab_nspawn, tmp_path) -> Iterator[ServerFactory]:
    """Make one dedicated server that is in its rescue, a container."""
    yield from _factory(lab_nspawn, tmp_path, 200)


@pytest.fixture
def virtual_server(lab_qemu, tmp_path) -> Iterator[ServerFactory]:
    """Make one dedicated server that is in its rescue, a virtual machine with a kernel of its own."""
    yield from _factory(lab_qemu, tmp_path, 600)
