# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of the lab in their rescue, and a controller that runs our modules on them as a user does."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.accounts import CloudAccount
from tests.integration.runs import Run, Running
from tests.waiting import until


class Rescuer(CloudAccount):
    """A controller with image commands, whose key the lab knows."""

    def __init__(self, lab: Any, folder: Path) -> None:
        super().__init__(lab, folder)
        self.command_dir, self.logs = folder / "commands", folder / "logs"
        self.command_dir.mkdir()

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
        self.ended(answer["action"])
        if rescue:
            self.act(name, "enable_rescue", {"type": "linux64", "ssh_keys": [self.key_id]})
        self.act(name, "poweron")
        address = answer["server"]["public_net"]["ipv4"]["ip"]
        self.reach(name, address)
        return address

    def install(self, name: str, script: str) -> str:
        """Put an image command into the command directory; returns its name."""
        path = self.command_dir / f"image-url-command-{name}"
        path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}")
        path.chmod(0o755)
        return path.name

    def install_large(self, name: str, script: str, seed: int = 0) -> tuple[str, bytes]:
        """Put an image command of 3 MB into the command directory; returns its name and content."""
        command = self.install(name, f"{script}exit 0\n")
        path = self.command_dir / command
        content = path.read_bytes() + random.Random(seed).randbytes(3_000_000)
        path.write_bytes(content)
        return command, content

    def run(self, machine: str, module: str, *flags: str, **options: object) -> Run:
        """Run one of our modules on a machine."""
        return self.module(machine, module, *flags, known_hosts_dir=str(self.pins), **options)

    def start_command(
        self, machine: str, command: str, *flags: str, env: dict[str, str] | None = None, **options: object
    ) -> Running:
        """Begin to run an image command on a machine."""
        given = {
            "image_url": "https://images.example/a.raw",
            "command": command,
            "command_dir": str(self.command_dir),
            "log_dir": str(self.logs),
            "known_hosts_dir": str(self.pins),
            "rescue_timeout": 600,
            # These machines hold the image they were made of, which may be overwritten.
            "consent": "checked",
            **options,
        }
        return self.start_module(machine, "image_url_command", *flags, env=env, **given)

    def command(self, machine: str, command: str, *flags: str, **options: Any) -> Run:
        """Run an image command on a machine."""
        return self.start_command(machine, command, *flags, **options).wait()

    def rebooted(self, machine: str, boot_id: str) -> None:
        """Wait until another boot of a machine answers."""
        ask = "cat /proc/sys/kernel/random/boot_id"
        until(lambda: self.ssh(machine, ask).strip() != boot_id, f"the reboot of {machine}", seconds=600)

    def log(self, machine: str, stream: str = "") -> str:
        """A log of the machine's image command on the controller."""
        name = f"image-url-command.{stream}.log" if stream else "image-url-command.log"
        return (self.logs / machine / name).read_text()


@pytest.fixture
def controller(lab_nspawn, tmp_path) -> Iterator[Rescuer]:
    """A controller with a key that the lab knows, and no machines yet."""
    controller = Rescuer(lab_nspawn, tmp_path)
    yield controller
    controller.close()


@pytest.fixture(scope="module")
def shared(lab_nspawn, tmp_path_factory) -> Iterator[Rescuer]:
    """A controller with one machine in its rescue, ``shared``, for tests that only run a command there."""
    controller = Rescuer(lab_nspawn, tmp_path_factory.mktemp("shared"))
    controller.machine("shared")
    yield controller
    controller.close()
