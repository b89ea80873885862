# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container sees of its disks where a kernel and udev would show them: /sys, /dev/disk and /run/udev.

All of it is a folder of the host, which the boot script mounts into the guest read-only and the lab keeps current.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from . import sysfs, udev
from .device_filter import Number
from .host_commands import run, unmount
from .identity import Identity, partition_name
from .loop import Loop
from .sysfs import TreeWriter, fill_tree

_EFI = {"efi/fw_platform_size": "64", "efi/efivars": None, "efi/runtime": "0x0"}
Content = dict[str, str]  # what blkid found on a device


class DiskView:
    """One disk of one boot."""

    def __init__(self, folder: Path, writer: TreeWriter, identity: Identity, name: str, loop: Loop) -> None:
        """Nothing is shown before the first `update`."""
        self.identity = identity
        self.name = name
        self.loop = loop
        self._block = folder / "sys/block"
        self._folder = folder
        self._writer = writer
        self._shown: dict[str, sysfs.Tree] = {}
        self._links: dict[str, str] = {}
        self._records: dict[str, str] = {}

    def host_nodes(self) -> dict[str, Path]:
        """The guest's name of the disk and its partitions, in this order → the host's node."""
        parts = {partition_name(self.name, n): Path(f"{self.loop.device}p{n}") for n in self.loop.partitions()}
        return {self.name: self.loop.device, **parts}

    def nodes(self) -> dict[str, tuple[int, int]]:
        """Names below the guest's /dev: the disk and its partitions, as they are shown now."""
        return {name or self.name: _number(tree) for name, tree in self._shown.items()}

    def update(self, admit: Callable[[Iterable[Number]], None] = lambda numbers: None) -> None:
        """Show the disk and its partitions as the kernel has them now.

        ``admit`` lets the guest reach devices: those of new partitions before it sees them, those of partitions that
        went until it sees them no more.
        """
        host = Path(f"/sys/block/loop{self.loop.number}")
        wanted = {"": sysfs.disk_tree(self.identity, self.name, sysfs.read_folder(host))}
        for number in self.loop.partitions():
            facts = sysfs.read_folder(host / f"loop{self.loop.number}p{number}")
            if {"dev", "start", "size", "partition"} <= facts.keys():  # else it has gone while we looked
                wanted[partition_name(self.name, number)] = sysfs.partition_tree(self.name, number, facts)
        now = {_number(tree) for tree in wanted.values()}
        admit(now.union(self.nodes().values()))
        for gone in self._shown.keys() - wanted.keys():
            self._hide(gone)
        for name, tree in wanted.items():
            if self._shown.get(name) != tree:
                self._show(name, tree)
        self._shown = wanted
        admit(now)

    def _show(self, name: str, tree: sysfs.Tree) -> None:
        folder = self._folder / "sys/devices" / self.name / name
        before = self._shown.get(name)
        if before is None:
            self._writer.folder(folder, tree)
            target = f"devices/virtual/block/{self.name}" + (f"/{name}" if name else "")
            for place, up in (("class-block", "../../"), ("dev-block", "../../")):
                entry = (name or self.name) if place == "class-block" else str(tree["dev"])
                self._writer.file(self._folder / "sys" / place / entry, sysfs.Link(up + target))
            if not name:
                self._writer.file(self._block / self.name, sysfs.Link(f"../{target}"))
            return
        for key, value in tree.items():
            if value is not None and before.get(key) != value:
                self._writer.file(folder / key, value)
        if before["dev"] != tree["dev"]:
            self._renumber(name, str(before["dev"]), str(tree["dev"]))

    def _renumber(self, name: str, before: str, now: str) -> None:
        numbers = self._folder / "sys/dev-block"
        self._writer.file(numbers / now, sysfs.Link((self._folder / "sys/class-block" / name).readlink().as_posix()))
        self._writer.remove(numbers / before)

    def _hide(self, name: str) -> None:
        self._writer.remove(self._folder / "sys/dev-block" / str(self._shown[name]["dev"]))
        self._writer.remove(self._folder / "sys/class-block" / name)
        self._writer.remove(self._folder / "sys/devices" / self.name / name)

    async def look(self) -> None:
        """Show what the disk and its partitions hold: udev's database and links."""
        fcntl.flock(self.loop.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as udev: who changes partitions has a lock
        try:
            found = {0: await _blkid(self.loop.device)}
            for number in self.loop.partitions():
                found[number] = await _blkid(Path(f"{self.loop.device}p{number}"))
        finally:
            fcntl.flock(self.loop.fd, fcntl.LOCK_UN)
        devices = self.loop.partitions() | {0: (7, self.loop.number)}
        known = udev.disk_properties(self.identity)
        records: dict[str, str] = {}
        links: dict[str, str] = {}
        for number, content in found.items():
            if number not in devices:
                continue
            name = partition_name(self.name, number) if number else self.name
            names = udev.disk_links(known, content, number)
            records["b{}:{}".format(*devices[number])] = udev.record(known | content, names)
            links |= dict.fromkeys(names, f"../../{name}")
        self._replace(self._folder / "udev/data", self._records, records)
        # a name that two devices claim belongs to the one that was looked at last
        self._replace(self._folder, self._links, links, link=True)
        self._records, self._links = records, links

    def _replace(self, folder: Path, before: dict[str, str], now: dict[str, str], link: bool = False) -> None:
        for name in before.keys() - now.keys():
            self._writer.remove(folder / name)
        for name, value in now.items():
            if before.get(name) != value:
                self._writer.file(folder / name, sysfs.Link(value) if link else value)


class View:
    """Everything that one boot of one machine sees of its hardware."""

    def __init__(self, folder: Path, disks: list[tuple[Identity, str, Loop]], uefi: bool) -> None:
        """Begin with an empty ``folder``."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("sys/block", "sys/class-block", "sys/dev-block", "sys/devices", "disk/by-id", "udev/data"):
            (folder / name).mkdir(parents=True)
        writer = TreeWriter(folder / "spare")
        writer.folder(folder / "sys/firmware", dict(_EFI) if uefi else {})
        self.folder = folder
        self.disks = [DiskView(folder, writer, identity, name, loop) for identity, name, loop in disks]
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        """Look at all disks, one after the other; a disk that a program has locked is tried again until it is free."""
        async with self._turn:
            for disk in self.disks:
                while True:
                    try:
                        await disk.look()
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)


def _number(tree: sysfs.Tree) -> Number:
    major, minor = str(tree["dev"]).split(":")
    return int(major), int(minor)


async def _blkid(device: Path) -> Content:
    process = await asyncio.create_subprocess_exec(
        "blkid", "-p", "-o", "udev", str(device),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, _none = await process.communicate()  # nothing found, or the device is gone: no output
    lines = (line.partition("=") for line in out.decode(errors="replace").splitlines())
    return {key: value for key, _equals, value in lines if key.startswith("ID_")}


class Views:
    """A folder in RAM: one of each machine (see `view`), and the two kinds of /sys/class that guests see."""

    def __init__(self, folder: Path) -> None:
        """Use `Views.open`."""
        self.folder = folder
        self.classes = folder / "classes"
        self.rescue_classes = folder / "rescue-classes"

    @classmethod
    async def open(cls, state_dir: Path, label: str) -> Views:
        """Mount it in the folder of the lab ``label``; `discard` takes it away."""
        views = cls(_views_folder(state_dir))
        views.folder.mkdir()
        await run("mount", "-t", "tmpfs", "-o", "mode=0755", f"views-{label}", str(views.folder))
        await asyncio.to_thread(fill_tree, views.classes, sysfs.classes("virtual"))
        await asyncio.to_thread(fill_tree, views.rescue_classes, sysfs.classes("lab"))
        return views


async def discard_views(state_dir: Path) -> None:
    """Take the views of a lab away, also those that a dead lab left mounted."""
    folder = _views_folder(state_dir)
    await unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _views_folder(state_dir: Path) -> Path:
    return state_dir / "views"
