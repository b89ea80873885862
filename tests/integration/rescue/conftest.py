# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of the lab in their rescue, and a controller that runs our modules on them as a user does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

_RESULT = re.compile(r"^\S+ \| \w+!? => ", re.MULTILINE)


class Run:
    """One run of a module on one machine: its result, and everything that was printed."""

    def __init__(self, returncode: int, stdout: str, stderr: str) -> None:
        self.printed = stdout + stderr
        self.failed = returncode != 0
        found = _RESULT.search(stdout)
        assert found, f"no result in:\n{self.printed}"
        self.result = json.JSONDecoder().raw_decode(stdout, found.end())[0]

    def __getitem__(self, key: str):
        return self.result[key]


class Controller:
    """Runs Ansible from a folder of its own."""

    def __init__(self, lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.commands, self.logs, self.pins = folder / "commands", folder / "logs", folder / "pins"
        self.commands.mkdir()
        self.key = folder / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self.key_name = f"rescue-{folder.name}"
        public = self.key.with_suffix(".pub").read_text()
        self.key_id = self.call("POST", "/ssh_keys", {"name": self.key_name, "public_key": public})["ssh_key"]["id"]
        self._servers: dict[str, int] = {}

    def call(self, method: str, path: str, body: object = None) -> dict:
        """One request to the lab's API."""
        request = urllib.request.Request(
            self.lab.endpoint + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.lab.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else {}

    def act(self, name: str, action: str, body: object = None) -> None:
        """An action on a server, waited for."""
        answer = self.call("POST", f"/servers/{self._servers[name]}/actions/{action}", body)
        self._wait(answer["action"]["id"])

    def _wait(self, action: int) -> None:
        deadline = time.monotonic() + 60
        while (found := self.call("GET", f"/actions/{action}")["action"])["status"] == "running":
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        assert found["status"] == "success", found

    def machine(self, name: str, rescue: bool = True, **more: object) -> str:
        """A new machine that boots its rescue or its image; returns its address."""
        body = {
            "name": name,
            "server_type": "cx23",
            "location": "fsn1",
            "image": "debian-13",
            "ssh_keys": [self.key_name],
            "start_after_create": False,
            **more,
        }
        answer = self.call("POST", "/servers", body)
        server = answer["server"]
        self._servers[name] = server["id"]
        self._wait(answer["action"]["id"])
        if rescue:
            self.act(name, "enable_rescue", {"type": "linux64", "ssh_keys": [self.key_id]})
        self.act(name, "poweron")
        address = server["public_net"]["ipv4"]["ip"]
        (self.folder / f"{name}.host").write_text(f"{name} ansible_host={address}\n")
        return address

    def install(self, name: str, script: str) -> str:
        """Put an image command into the command directory; returns its name."""
        path = self.commands / f"image-url-command-{name}"
        path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}")
        path.chmod(0o755)
        return path.name

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

    def line(self, machine: str, module: str, *flags: str, **options: object) -> list[str]:
        """The command line that runs one of our modules on a machine."""
        inventory = self.folder / "inventory"
        hosts = "".join(path.read_text() for path in sorted(self.folder.glob("*.host")))
        inventory.write_text(
            hosts + "[all:vars]\nansible_user=root\nansible_python_interpreter=/usr/bin/python3\n"
            f"ansible_ssh_private_key_file={self.key}\n"
        )
        given = {"known_hosts_dir": str(self.pins), **options}
        if module == "image_url_command":
            given = {"command_dir": str(self.commands), "log_dir": str(self.logs), "rescue_timeout": 60, **given}
            # These machines hold the image they were made of, and nobody minds.
            given.setdefault("consent", "checked")
        module = f"kubenode.provision.{module}"
        return ["ansible", machine, "-i", str(inventory), "-m", module, "-a", json.dumps(given), *flags]

    def run(self, machine: str, module: str, *flags: str, env: dict | None = None, **options: object) -> Run:
        """Run one of our modules on a machine."""
        process = subprocess.run(
            self.line(machine, module, *flags, **options),
            env={**self.environment, **(env or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        return Run(process.returncode, process.stdout, process.stderr)

    def command(self, machine: str, command: str, *flags: str, env: dict | None = None, **options: object) -> Run:
        """Run an image command on a machine."""
        given = {"image_url": "https://images.example/a.raw", "command": command, **options}
        return self.run(machine, "image_url_command", *flags, env=env, **given)

    def ssh(self, machine: str, script: str) -> str:
        """What a script prints on a machine; the user's own SSH, apart from Ansible's."""
        address = (self.folder / f"{machine}.host").read_text().rpartition("=")[2].strip()
        options = [
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
        ]
        line = ["ssh", *options, "-i", str(self.key), f"root@{address}", script]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout

    def log(self, machine: str, stream: str = "") -> str:
        """A log of the machine's image command on the controller."""
        name = f"image-url-command.{stream}.log" if stream else "image-url-command.log"
        return (self.logs / machine / name).read_text()

    def close(self) -> None:
        """Delete what was made."""
        for server in self._servers.values():
            self.call("DELETE", f"/servers/{server}")
        self.call("DELETE", f"/ssh_keys/{self.key_id}")


@pytest.fixture
def controller(lab_nspawn, tmp_path) -> Iterator[Controller]:
    """A controller with a key that the lab knows, and no machines yet."""
    controller = Controller(lab_nspawn, tmp_path)
    yield controller
    controller.close()
