# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest sees of its disks, at every moment of a change."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from lab.machines import guest_view
from lab.machines.cgroup import Number
from lab.machines.disks import Identity
from lab.machines.guest_view import DiskView, Link, Tree, TreeWriter
from lab.machines.loop import Loop, sync_partitions

SIZE = 64 << 20


class Watched(TreeWriter):
    """Looks, as the guest may, after each single write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "spare")
        self.devices = folder / "sys/devices"
        self.admitted: set[Number] = set()
        self.seen: list[set[Number]] = []

    def admit(self, numbers: Iterable[Number]) -> None:
        self.admitted = set(numbers)
        self.look()

    def file(self, path: Path, content: str | Link) -> None:
        super().file(path, content)
        self.look()

    def folder(self, path: Path, tree: Tree) -> None:
        super().folder(path, tree)
        self.look()

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.look()

    def look(self) -> None:
        found = [file.read_text().strip().split(":") for file in self.devices.glob("*/**/dev")]
        shown = {(int(major), int(minor)) for major, minor in found}
        assert shown <= self.admitted, "the guest is shown a device that it cannot reach"
        if not self.seen or self.seen[-1] != shown:
            self.seen.append(shown)


@pytest.mark.root
def test_a_guest_can_reach_every_device_that_it_is_shown(tmp_path: Path) -> None:
    """A device that was shown a moment before it could be made failed an image command: operation not permitted."""
    file = tmp_path / "disk.raw"
    file.touch()
    os.truncate(file, SIZE)
    loop = Loop(file)
    try:
        watched = Watched(tmp_path)
        disk = DiskView(tmp_path, watched, Identity("nvme", 0, "S1", "eui.1", "Disk", False, SIZE), "nvme0n1", loop)
        for table in ("", "start=2048, size=2048\nstart=8192, size=2048\n", "start=4096, size=2048\n", ""):
            script = f"label: gpt\n{table}".encode()
            command = ["sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", "--wipe", "always", str(loop.device)]
            subprocess.run(command, input=script, check=True)
            sync_partitions(loop, SIZE)
            disk.update(watched.admit)
            assert watched.admitted == set(disk.nodes().values()) == {(7, loop.number), *loop.partitions().values()}
            assert len(watched.admitted) == 1 + table.count("start")
        assert max(map(len, watched.seen)) == 3
    finally:
        loop.close()


class Renumbered:
    """What a `DiskView` asks a loop device: two partitions, whose numbers the kernel changes when it reads again."""

    number = 7

    def __init__(self) -> None:
        self.minors = {1: 31, 2: 32}

    def partitions(self) -> dict[int, tuple[int, int]]:
        return {number: (259, minor) for number, minor in self.minors.items()}

    def read_folder(self, folder: Path) -> dict[str, str]:
        number = folder.name.removeprefix("loop7").removeprefix("p")
        if not number:
            return {"dev": "7:7"}
        return {"dev": f"259:{self.minors[int(number)]}", "start": "64", "size": "64", "partition": number}


@pytest.mark.parametrize("minors", [{1: 32, 2: 31}, {1: 32, 2: 33}, {1: 30, 2: 31}, {2: 31}, {1: 33, 2: 31, 3: 32}, {}])
def test_a_device_is_found_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minors: dict[int, int]
) -> None:
    """Two partitions that had changed their numbers were one to lsblk: the link of the other had been taken away."""
    kernel = Renumbered()
    monkeypatch.setattr(guest_view, "read_folder", kernel.read_folder)
    watched = Watched(tmp_path)
    identity = Identity("nvme", 0, "S1", "eui.1", "Disk", False, SIZE)
    disk = DiskView(tmp_path, watched, identity, "nvme0n1", cast(Loop, kernel))
    disk.update(watched.admit)
    kernel.minors = minors
    disk.update(watched.admit)
    links = {link.name: link.readlink().name for link in (tmp_path / "sys/dev-block").iterdir()}
    named = {f"nvme0n1p{number}": f"259:{minor}" for number, minor in minors.items()}
    assert {name: number for number, name in links.items()} == {"nvme0n1": "7:7"} | named
