# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In place of udev in a container: its properties and links of disks (as 60-persistent-storage.rules of systemd 252
make them), and its control socket, where `udevadm settle` waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cgroup import Number
from .disks import Identity, partition_name
from .host_commands import run, unmount
from .loop import Loop

Properties = dict[str, str]
_MESSAGE = 1 << 12
#: A message of udevadm: 16 bytes of version, a magic number, and its kind; this kind is the last message.
_KIND = slice(20, 24)
_UDEV_END = bytes(4)
#: Seconds for which the last message is waited for; before systemd 246 there was none.
_OLD = 2.0


def disk_properties(disk: Identity) -> Properties:
    """The ID_ properties of a whole disk, without what is on it."""
    known = {"nvme": _nvme, "sata": _sata, "scsi": _scsi}[disk.kind](disk)
    path = path_id(disk)
    known |= {"ID_PATH": path, "ID_PATH_TAG": path.replace(":", "_").replace(".", "_")}
    return known | ({"ID_PATH_ATA_COMPAT": path.removesuffix(".0")} if disk.kind == "sata" else {})


def path_id(disk: Identity) -> str:
    """Where the disk is plugged in: the same at every boot."""
    if disk.kind == "nvme":
        return f"pci-0000:{disk.place + 1:02x}:00.0-nvme-1"
    if disk.kind == "sata":
        return f"pci-0000:00:1f.2-ata-{disk.place + 1}.0"
    return f"pci-0000:00:05.0-scsi-0:0:{disk.place}:0"


def disk_links(properties: Mapping[str, str], content: Mapping[str, str], part: int = 0) -> list[str]:
    """Links below /dev to a disk, or to its partition ``part``; ``content`` is what blkid found there."""
    names = [f"by-path/{properties[key]}" for key in ("ID_PATH", "ID_PATH_ATA_COMPAT") if key in properties]
    if "ID_NSID" in properties:
        older = properties["ID_SERIAL"].removesuffix(f"_{properties['ID_NSID']}")
        names += [f"by-id/nvme-{name}" for name in (properties["ID_WWN"], older, properties["ID_SERIAL"])]
    else:
        names.append(f"by-id/{properties['ID_BUS']}-{properties['ID_SERIAL']}")
    if "ID_WWN_WITH_EXTENSION" in properties:
        names.append(f"by-id/wwn-{properties['ID_WWN_WITH_EXTENSION']}")
    if part:
        names = [f"{name}-part{part}" for name in names]
    if content.get("ID_FS_USAGE") in ("filesystem", "other", "crypto"):
        names += _named(content, "by-uuid", "ID_FS_UUID_ENC") + _named(content, "by-label", "ID_FS_LABEL_ENC")
    names += _named(content, "by-partuuid", "ID_PART_ENTRY_UUID") + _named(
        content, "by-partlabel", "ID_PART_ENTRY_NAME"
    )
    return [f"disk/{name}" for name in names]


def udev_record(properties: Mapping[str, str], links: list[str]) -> str:
    """The text of a file in udev's database, /run/udev/data."""
    lines = [*(f"S:{link}" for link in sorted(links)), "I:1"]
    lines += [f"E:{key}={value}" for key, value in sorted(properties.items())]
    return "\n".join([*lines, "V:1"]) + "\n"


def _nvme(disk: Identity) -> Properties:
    return {
        "ID_SERIAL_SHORT": disk.serial,
        "ID_WWN": disk.wwn,
        "ID_MODEL": disk.model,
        "ID_REVISION": "1.0",
        "ID_NSID": "1",
        "ID_SERIAL": f"{_joined(disk.model)}_{_joined(disk.serial)}_1",
    }


def _sata(disk: Identity) -> Properties:
    known = {
        "ID_ATA": "1",
        "ID_ATA_SATA": "1",
        "ID_ATA_ROTATION_RATE_RPM": "7200" if disk.rotational else "0",
        "ID_BUS": "ata",
        "ID_TYPE": "disk",
        "ID_MODEL": _joined(disk.model),
        "ID_MODEL_ENC": _encoded(disk.model.ljust(40)),
        "ID_REVISION": "1.0",
        "ID_SERIAL": f"{_joined(disk.model)}_{_joined(disk.serial)}",
        "ID_SERIAL_SHORT": _joined(disk.serial),
    }
    return known | {"ID_WWN": disk.wwn, "ID_WWN_WITH_EXTENSION": disk.wwn}


def _scsi(disk: Identity) -> Properties:
    known = {
        "ID_SCSI": "1",
        "ID_BUS": "scsi",
        "ID_TYPE": "disk",
        "ID_VENDOR": "QEMU",
        "ID_VENDOR_ENC": _encoded("QEMU".ljust(8)),
        "ID_MODEL": _joined(disk.model),
        "ID_MODEL_ENC": _encoded(disk.model.ljust(16)),
        "ID_REVISION": "2.5+",
        "ID_SCSI_SERIAL": disk.serial,
        "ID_SERIAL": f"0QEMU_{_joined(disk.model)}_{_joined(disk.serial)}",
        "ID_SERIAL_SHORT": _joined(disk.serial),
    }
    if disk.wwn:
        known |= {"ID_WWN": disk.wwn, "ID_WWN_WITH_EXTENSION": disk.wwn}
        known |= {"ID_SERIAL": f"3{disk.wwn[2:]}", "ID_SERIAL_SHORT": disk.wwn[2:]}
    return known


def _named(content: Mapping[str, str], folder: str, key: str) -> list[str]:
    return [f"{folder}/{content[key]}"] if content.get(key) and "/" not in content[key] else []


def _joined(text: str) -> str:
    return "_".join(text.split())


def _encoded(text: str) -> str:
    return text.replace(" ", "\\x20")


class UdevControl:
    """Answers each `udevadm settle` when the lab has shown what the kernel knows of the machine's disks."""

    def __init__(self, folder: Path, settled: Callable[[], Awaitable[None]]) -> None:
        """``folder`` is what the guest sees as /run/udev; ``settled`` returns when everything is shown there."""
        self._settled = settled
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{place}/control")  # a path may be longer than an address
        finally:
            os.close(place)
        self._socket.listen(128)
        self._tasks: set[asyncio.Task[None]] = set()
        # not before the event loop has let go of it: what gets its number next would not be listened to
        self._start(self._answer()).add_done_callback(lambda _task: self._socket.close())

    def close(self) -> None:
        """Ends all connections: a `udevadm settle` that still waits returns."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            guest, _none = await loop.sock_accept(self._socket)
            self._start(self._hear(guest))

    async def _hear(self, guest: socket.socket) -> None:
        with guest, contextlib.suppress(ConnectionError):
            guest.setblocking(False)
            await asyncio.get_running_loop().sock_recv(guest, _MESSAGE)
            await self._settled()
            # udevadm fails when the connection is closed before its last message
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_all_heard(guest), _OLD)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _all_heard(guest: socket.socket) -> None:
    """Read until the last message, or until the guest has gone."""
    loop = asyncio.get_running_loop()
    while (message := await loop.sock_recv(guest, _MESSAGE)) and message[_KIND] != _UDEV_END:
        pass


_HBA = "Virtio SCSI HBA"
_AHCI_HOSTS = 16
_RESTLESS = ("stat", "inflight")  # counters
Tree = dict[str, "str | Link | None"]


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


_BLOCK = Link("../../../../class/block")


def disk_tree(disk: Identity, name: str, host: dict[str, str]) -> Tree:
    """The folder of a disk; ``host`` is what the host's kernel says of the loop device."""
    major, minor = host["dev"].split(":")
    tree: Tree = {key: value for key, value in host.items() if key not in ("uevent", "hidden")}
    tree |= {
        "uevent": f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE=disk\nDISKSEQ={host.get('diskseq', '1')}",
        "queue/rotational": str(int(disk.rotational)),
        "removable": "0",
        "hidden": "0",
        "subsystem": _BLOCK,
        "holders": None,
        "slaves": None,
    }
    if disk.kind == "nvme":
        controller = f"nvme{name.removeprefix('nvme').split('n')[0]}"
        tree |= {"wwid": disk.wwn, "nsid": "1", "device": Link(controller)}
        facts = {"model": disk.model.ljust(40), "serial": disk.serial.ljust(20), "firmware_rev": "1.0     "}
        facts |= {"transport": "pcie", "address": f"0000:{disk.place + 1:02x}:00.0", "state": "live"}
        return tree | {f"{controller}/{key}": value for key, value in facts.items()}
    # lsblk wants a slash in the link to the device, as there always is where the device is elsewhere
    address = f"{disk.place + 1}:0:0:0" if disk.kind == "sata" else f"0:0:{disk.place}:0"
    vendor = "ATA     " if disk.kind == "sata" else "QEMU    "
    facts = {"vendor": vendor, "model": disk.model[:16].ljust(16), "rev": "1.0 ", "type": "0", "state": "running"}
    if disk.wwn:
        facts["wwid"] = f"naa.{disk.wwn[2:]}"
    return tree | {"device": Link(f"./{address}")} | {f"{address}/{key}": value for key, value in facts.items()}


def partition_tree(name: str, number: int, host: dict[str, str]) -> Tree:
    """The folder of a partition of the disk ``name``."""
    major, minor = host["dev"].split(":")
    tree: Tree = {key: value for key, value in host.items() if key != "uevent"}
    known = f"MAJOR={major}\nMINOR={minor}\nDEVNAME={partition_name(name, number)}\nDEVTYPE=partition\nPARTN={number}"
    return tree | {"uevent": known, "subsystem": Link("../../../../../class/block"), "holders": None}


def classes(parent: str, host: Path = Path("/sys/class")) -> Tree:
    """/sys/class of a guest: the host's, but for disks, their controllers, firmware facts and the network.

    ``parent``: the folder below /sys/devices that has the guest's network interfaces.
    """
    tree: Tree = {"block": None, "dmi/id": None, "net": Link(f"../devices/{parent}/net")}
    for folder in host.iterdir():
        if folder.name in ("block", "dmi", "net", "nvme", "nvme-subsystem", "scsi_host", "scsi_disk", "scsi_device"):
            continue
        tree[folder.name] = None
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):  # a plain attribute, or gone
                tree[f"{folder.name}/{entry.name}"] = Link(str(entry.readlink()))
    tree["scsi_host/host0/proc_name"] = _HBA
    return tree | {f"scsi_host/host{number}/proc_name": "ahci" for number in range(1, _AHCI_HOSTS)}


def read_folder(folder: Path) -> dict[str, str]:
    """The attributes of a block device that the host's kernel shows, its queue's included."""
    found = {}
    for place in (folder, folder / "queue"):
        with contextlib.suppress(OSError):
            for entry in sorted(place.iterdir()):
                if entry.name in _RESTLESS or entry.is_symlink() or not entry.is_file():
                    continue
                with contextlib.suppress(OSError, UnicodeDecodeError):  # some can only be written
                    found[str(entry.relative_to(folder))] = entry.read_text().rstrip("\n")
    return found


class TreeWriter:
    """Puts files, links and whole folders in place by rename; ``spare`` is on the same file system, unseen."""

    def __init__(self, spare: Path) -> None:
        """``spare`` is made when it is not there."""
        self._spare = spare
        spare.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def file(self, path: Path, content: str | Link) -> None:
        """A file (its content ends with a line feed) or a link."""
        new = self._new()
        if isinstance(content, Link):
            new.symlink_to(content.target)
        else:
            new.write_text(content if content.endswith("\n") else content + "\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        new.replace(path)

    def folder(self, path: Path, tree: Tree) -> None:
        """A whole folder, where there is none yet."""
        new = self._new()
        fill_tree(new, tree)
        path.parent.mkdir(parents=True, exist_ok=True)
        new.rename(path)

    def remove(self, path: Path) -> None:
        """Take a file, link or folder away; nothing happens when it is not there."""
        gone = self._new()
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()

    def replace(self, folder: Path, before: Mapping[str, str | Link], now: Mapping[str, str | Link]) -> None:
        """The files and links of ``now`` in the place of those of ``before``."""
        for name in before.keys() - now.keys():
            self.remove(folder / name)
        for name, content in now.items():
            if before.get(name) != content:
                self.file(folder / name, content)

    def _new(self) -> Path:
        self._count += 1
        return self._spare / str(self._count)


def fill_tree(folder: Path, tree: Tree) -> None:
    """Make ``folder`` and what the tree says inside."""
    folder.mkdir(parents=True)
    made = {""}
    for name, content in tree.items():
        parent = name if content is None else os.path.dirname(name)
        if parent not in made:
            (folder / parent).mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if isinstance(content, Link):
            (folder / name).symlink_to(content.target)
        elif content is not None:
            (folder / name).write_text(content if content.endswith("\n") else content + "\n")


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
        self._shown: dict[str, Tree] = {}
        #: What they were seen to hold: entries of udev's database, and the names below /dev that they claim.
        self.records: dict[str, str] = {}
        self.links: dict[str, Link] = {}

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
        wanted = {"": disk_tree(self.identity, self.name, read_folder(host))}
        for number in self.loop.partitions():
            facts = read_folder(host / f"loop{self.loop.number}p{number}")
            if {"dev", "start", "size", "partition"} <= facts.keys():  # else it has gone while we looked
                wanted[partition_name(self.name, number)] = partition_tree(self.name, number, facts)
        now = {_number(tree) for tree in wanted.values()}
        before = set(self.nodes().values())
        admit(now | before)
        for gone in self._shown.keys() - wanted.keys():
            self._hide(gone)
        for name, tree in wanted.items():
            if self._shown.get(name) != tree:
                self._show(name, tree)
        for major, minor in before - now:  # at last: a kernel may give a partition the number that another one had
            self._writer.remove(self._folder / "sys/dev-block" / f"{major}:{minor}")
        self._shown = wanted
        admit(now)

    def _show(self, name: str, tree: Tree) -> None:
        folder = self._folder / "sys/devices" / self.name / name
        before = self._shown.get(name)
        if before is None:
            self._writer.folder(folder, tree)
            target = f"devices/virtual/block/{self.name}" + (f"/{name}" if name else "")
            for place, up in (("class-block", "../../"), ("dev-block", "../../")):
                entry = (name or self.name) if place == "class-block" else str(tree["dev"])
                self._writer.file(self._folder / "sys" / place / entry, Link(up + target))
            if not name:
                self._writer.file(self._block / self.name, Link(f"../{target}"))
            return
        for key, value in tree.items():
            if value is not None and before.get(key) != value:
                self._writer.file(folder / key, value)
        if before["dev"] != tree["dev"]:
            link = self._folder / "sys/class-block" / (name or self.name)
            self._writer.file(self._folder / "sys/dev-block" / str(tree["dev"]), Link(link.readlink().as_posix()))

    def _hide(self, name: str) -> None:
        self._writer.remove(self._folder / "sys/dev-block" / str(self._shown[name]["dev"]))
        self._writer.remove(self._folder / "sys/class-block" / name)
        self._writer.remove(self._folder / "sys/devices" / self.name / name)

    async def look(self) -> None:
        """See what the disk and its partitions hold."""
        fcntl.flock(self.loop.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as udev: who changes partitions has a lock
        try:
            found = {0: await _blkid(self.loop.device)}
            for number in self.loop.partitions():
                found[number] = await _blkid(Path(f"{self.loop.device}p{number}"))
        finally:
            fcntl.flock(self.loop.fd, fcntl.LOCK_UN)
        devices = self.loop.partitions() | {0: (7, self.loop.number)}
        known = disk_properties(self.identity)
        records: dict[str, str] = {}
        links: dict[str, Link] = {}
        for number, content in found.items():
            if number not in devices:
                continue
            name = partition_name(self.name, number) if number else self.name
            names = disk_links(known, content, number)
            records["b{}:{}".format(*devices[number])] = udev_record(known | content, names)
            links |= dict.fromkeys(names, Link(f"../../{name}"))
        self.records, self.links = records, links


class View:
    """Everything that one boot of one machine sees of its hardware."""

    def __init__(self, folder: Path, disks: list[tuple[Identity, str, Loop]], uefi: bool) -> None:
        """Begin with an empty ``folder``."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("sys/block", "sys/class-block", "sys/dev-block", "sys/devices", "disk/by-id", "udev/data"):
            (folder / name).mkdir(parents=True)
        self._writer = writer = TreeWriter(folder / "spare")
        writer.folder(folder / "sys/firmware", dict(_EFI) if uefi else {})
        self.folder = folder
        self.disks = [DiskView(folder, writer, identity, name, loop) for identity, name, loop in disks]
        self._records: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        """Show what all disks hold, one after the other; one that a program has locked is tried until it is free."""
        async with self._turn:
            for disk in self.disks:
                while True:
                    try:
                        await disk.look()
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)
                self._show()

    def _show(self) -> None:
        """Links first: who finds the disk in the database follows them."""
        # A name that two disks claim leads to the last one, and to the other one when that claims it no more.
        links = {name: link for disk in self.disks for name, link in disk.links.items()}
        self._writer.replace(self.folder, self._links, links)
        records = {name: record for disk in self.disks for name, record in disk.records.items()}
        self._writer.replace(self.folder / "udev/data", self._records, records)
        self._links, self._records = links, records


def _number(tree: Tree) -> Number:
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
        await asyncio.to_thread(fill_tree, views.classes, classes("virtual"))
        await asyncio.to_thread(fill_tree, views.rescue_classes, classes("lab"))
        return views


async def discard_views(state_dir: Path) -> None:
    """Take the views of a lab away, also those that a dead lab left mounted."""
    folder = _views_folder(state_dir)
    await unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _views_folder(state_dir: Path) -> Path:
    return state_dir / "views"
