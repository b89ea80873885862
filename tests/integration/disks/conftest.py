# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers of the lab in their rescue, and a controller that asks for their disks as a user does."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.accounts import RobotAccount
from tests.integration.runs import Run, Running
from tests.waiting import until

NAME = "node-1"


class Server(RobotAccount):
    """One dedicated server, and its owner's controller."""

    def __init__(self, lab: Any, folder: Path, **spec: object) -> None:
        super().__init__(lab, folder)
        self.add(NAME, powered=False, **spec)
        self.claim, self.specs = folder / "claims" / f"{NAME}.json", self.row(NAME)["disks"]
        self._boot_id = ""

    def boot_rescue(self) -> None:
        """Boot into the rescue, from any state, and wait until it answers."""
        self.arm(NAME)
        self.reset(NAME, "hw" if self._boot_id else "power")

        def booted() -> list[str]:
            answer = self.sh("cat /proc/sys/kernel/random/boot_id; hostname").split()
            return [] if answer[0] == self._boot_id else answer

        self._boot_id, hostname = until(booted, "the rescue", seconds=900)
        assert hostname == "rescue"

    def sh(self, script: str) -> str:
        return self.ssh(NAME, script)

    def disk_marks(self) -> list[str]:
        """The marks of the disks, see `accounts.disk_marks`."""
        return self.marks(NAME)

    def start(self, module: str, *flags: str, **options: object) -> Running:
        """Begin to run one of our modules on the machine."""
        given = {"known_hosts_dir": str(self.pins), "rescue_timeout": 600, **options}
        return self.start_module(NAME, module, *flags, **given)

    def disks(self, *flags: str, **options: object) -> Run:
        return self.start("machine_disks", *flags, **{"claim_file": str(self.claim), **options}).wait()

    def ready(self, *flags: str, **options: object) -> Run:
        """Run machine_disks with state=ready."""
        return self.disks(*flags, state="ready", **options)


def by_serial(run: Run) -> dict[str, dict]:
    """The facts of the disks by their serial numbers."""
    return {disk["serial"]: disk for disk in run["disks"]}


def held(disk: dict) -> list[str]:
    """The kinds of what a disk holds, in order."""
    return [entry["kind"] for entry in disk["holds"]]


ServerFactory = Callable[..., Server]


def _factory(lab: Any, folder: Path) -> Iterator[ServerFactory]:
    with ExitStack() as stack:

        def make(**spec: object) -> Server:
            server = Server(lab, folder, **spec)
            stack.callback(server.close)
            server.boot_rescue()
            return server

        yield make


@pytest.fixture
def server(lab_nspawn, tmp_path) -> Iterator[ServerFactory]:
    """Make one dedicated server that is in its rescue, a container."""
    yield from _factory(lab_nspawn, tmp_path)


@pytest.fixture
def virtual_server(lab_qemu, tmp_path) -> Iterator[ServerFactory]:
    """Make one dedicated server that is in its rescue, a virtual machine with a kernel of its own."""
    yield from _factory(lab_qemu, tmp_path)
