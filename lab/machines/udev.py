# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In place of udev in a container: its properties and links of disks (as 60-persistent-storage.rules of systemd 252
make them), and its control socket, where `udevadm settle` waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from .disks import Identity

Properties = dict[str, str]
_MESSAGE = 1 << 12
#: A message of udevadm: 16 bytes of version, a magic number, and its kind; this kind is the last message.
_KIND = slice(20, 24)
_END = bytes(4)
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


def record(properties: Mapping[str, str], links: list[str]) -> str:
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
        self._start(self._answer())

    def close(self) -> None:
        """Ends all connections: a `udevadm settle` that still waits returns."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()

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

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _all_heard(guest: socket.socket) -> None:
    """Read until the last message, or until the guest has gone."""
    loop = asyncio.get_running_loop()
    while (message := await loop.sock_recv(guest, _MESSAGE)) and message[_KIND] != _END:
        pass
