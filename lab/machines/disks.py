# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware of one machine, its disks and its console: what disks say of themselves, their files in the store."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from lab.errors import LabError

from .store import Store, clone, copy_sparse

Range = tuple[int, int | None]  # of a disk: start and length in bytes; without a length up to its end
WHOLE: Range = (0, None)
_LONGEST = {"scsi": (36, 16), "sata": (20, 40), "nvme": (20, 40)}  # serial, model: the fields of the protocols
_WWN = {"scsi": r"0x[0-9a-f]{16}", "sata": r"0x[0-9a-f]{16}", "nvme": r"eui\.[0-9a-f]{16}"}
_TEXT = re.compile(r"[A-Za-z0-9_.:+-]+( [A-Za-z0-9_.:+-]+)*")


@dataclass(frozen=True)
class DiskSpec:
    """One disk; a serial, WWN or model that is left out is the kind's own (see `identities`)."""

    size_bytes: int
    kind: Literal["scsi", "sata", "nvme"] = "scsi"  # the one disk of a cloud machine is a scsi disk
    serial: str = ""
    wwn: str = ""  # sata, scsi: 0x and 16 hexadecimal digits (NAA); nvme: eui. and 16; see `Machine.disks`, too
    model: str = ""
    rotational: bool = False


@dataclass(frozen=True)
class Hardware:
    """What a machine consists of; only disks are ever added or replaced."""

    machine_id: int  # the API's server id; also the DMI serial
    name: str
    cores: int
    memory_mib: int
    disks: tuple[DiskSpec, ...]  # at least one; the firmware tries them in this order
    mac: str
    ipv4: str
    ipv6: str = ""  # its public network, of which the first address is the machine's
    public_ipv4: bool = True  # without: its IPv4 address reaches the metadata service alone
    architecture: str = "x86"
    manufacturer: str = "Hetzner"  # DMI; cloud-init takes this vendor for a cloud machine with a metadata service
    product: str = "vServer"
    uefi: bool = False
    swaps_letters: bool = False  # at every other boot the kernel names disks of the same kind in reverse order

    @property
    def disk_bytes(self) -> int:
        """Size of the first disk."""
        return self.disks[0].size_bytes


@dataclass(frozen=True)
class Identity:
    """One disk with everything that it reports; ``place`` counts the disks on the same controllers from 0."""

    kind: Literal["scsi", "sata", "nvme"]
    place: int
    serial: str
    wwn: str  # may be empty for scsi
    model: str
    rotational: bool
    size_bytes: int

    def spec(self) -> DiskSpec:
        """The same as hardware."""
        return DiskSpec(self.size_bytes, self.kind, self.serial, self.wwn, self.model, self.rotational)


def identities(hardware: Hardware) -> tuple[Identity, ...]:
    """The disks of a machine, in the order of its hardware; a `LabError` names a disk that cannot exist."""
    if not hardware.disks:
        raise LabError(f"machine {hardware.name} has no disk; give its hardware at least one")
    counts: dict[str, int] = {}
    found = []
    for index, spec in enumerate(hardware.disks):
        place = counts[spec.kind] = counts.get(spec.kind, -1) + 1
        serial, wwn, model = _own(spec, hardware.machine_id, index)
        _check(f"machine {hardware.name}: disk {index}", spec, serial, wwn, model)
        found.append(Identity(spec.kind, place, serial, wwn, model, spec.rotational, spec.size_bytes))
    return tuple(found)


def kernel_names(disks: tuple[Identity, ...], swapped: bool) -> tuple[str, ...]:
    """The kernel's name of each disk; ``swapped``: it found the disks of each kind in reverse order."""
    names = [""] * len(disks)
    letters = [index for index, disk in enumerate(disks) if disk.kind != "nvme"]
    spaces = [index for index, disk in enumerate(disks) if disk.kind == "nvme"]
    if swapped:  # drivers of the same kind race with one another; a reversed order is the clearest case
        letters.reverse()
        spaces.reverse()
    for place, index in enumerate(letters):
        names[index] = f"sd{chr(ord('a') + place)}"
    for place, index in enumerate(spaces):
        names[index] = f"nvme{place}n1"
    return tuple(names)


def partition_name(disk: str, number: int) -> str:
    """The kernel's name of a partition."""
    return f"{disk}p{number}" if disk[-1] in "0123456789" else f"{disk}{number}"


def _own(spec: DiskSpec, machine: int, index: int) -> tuple[str, str, str]:
    """Serial, WWN and model, the kind's own where the hardware leaves them open; no two machines share one."""
    number = machine & 0xFFFFFFFF
    if spec.kind == "nvme":
        own = f"S675NX0T{machine:06}{index}", f"eui.002538{number:08x}{index:02x}", "SAMSUNG MZVL2512HCJQ-00B00"
    elif spec.kind == "scsi":
        own = f"{machine}{index:02}", "", "QEMU HARDDISK"
    elif spec.rotational:
        own = f"ZC1{machine:06}{index}", f"0x5000c50{number:08x}{index:x}", "ST4000NM0245-1Z2107"
    else:
        own = f"S45RNE0M{machine:06}{index}", f"0x5002538{number:08x}{index:x}", "SAMSUNG MZ7LH480HAHQ-00005"
    return spec.serial or own[0], spec.wwn.lower() or own[1], spec.model or own[2]


def _check(where: str, spec: DiskSpec, serial: str, wwn: str, model: str) -> None:
    if spec.kind not in _WWN:
        raise LabError(f"{where}: kind {spec.kind!r} is not one of {', '.join(_WWN)}")
    if spec.size_bytes <= 0 or spec.size_bytes % 512:
        raise LabError(f"{where}: size {spec.size_bytes} is not a positive multiple of 512 bytes")
    if wwn and not re.fullmatch(_WWN[spec.kind], wwn):
        raise LabError(f"{where}: wwn {wwn!r} does not fit kind {spec.kind}, which has {_WWN[spec.kind]}")
    for field, value, longest in zip(("serial", "model"), (serial, model), _LONGEST[spec.kind], strict=True):
        if len(value) > longest or not _TEXT.fullmatch(value):
            raise LabError(f"{where}: {field} {value!r} is not of 1..{longest} letters, digits, _ . : + - and spaces")


_TAIL = 64 << 10
_CHUNK = 1 << 20


class Console:
    """Where a machine prints."""

    def __init__(self, file: Path) -> None:
        """Print into ``file``."""
        self.file = file

    def clear(self) -> None:
        """Forget what was printed (at power on)."""
        self.file.write_bytes(b"")

    def open(self) -> BinaryIO:
        """A handle for a guest to print into."""
        return self.file.open("ab")

    def say(self, line: str) -> None:
        """Print a line of the firmware's own."""
        with self.open() as file:
            file.write(line.encode() + b"\r\n")

    def text(self) -> str:
        """The end of what was printed."""
        try:
            with self.file.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _TAIL))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""


def _next_data(fd: int, position: int, size: int) -> int:
    """Where data begin at or behind a position; the end of the disk when there are none."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError:
        return size


class Disk:
    """A disk that stays with its machine."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        """Nothing exists before `install`."""
        self.store = store
        self.file = store.folder / f"{name}.raw"
        self.size = size
        self._moment = self.file.with_suffix(".moment")

    async def install(self, image: Path | None) -> None:
        """Put in a disk: empty, or holding the raw image ``image``."""
        if image is not None:
            await self.store.copy(image, self.file, self.size)
            return
        with self.file.open("wb") as file:
            file.truncate(self.size)

    def copy_to(self, target: Path) -> int:
        """Copy the content into the raw file ``target``; returns the bytes that are allocated."""
        copy_sparse(self.file, target)
        return os.stat(target).st_blocks * 512

    def digest(self, part: Range = WHOLE) -> str:
        """SHA-256 of all bytes, or of a range of them, those that were never written included."""
        digest = hashlib.sha256()
        with self.file.open("rb") as file:
            for position, length in self._chunks(part):
                digest.update(os.pread(file.fileno(), length, position))
        return digest.hexdigest()

    def mark(self, part: Range = WHOLE) -> str:
        """The same for equal bytes, another one for others: as a digest, but without the time for empty room."""
        digest = hashlib.sha256()
        with self.file.open("rb") as file:
            beyond = 0  # up to here the next data has been looked for
            for position, length in self._chunks(part):
                if position + length <= beyond:
                    continue
                beyond = max(position, _next_data(file.fileno(), position, self.size))
                chunk = os.pread(file.fileno(), length, position) if beyond < position + length else b""
                if chunk.strip(b"\0"):
                    digest.update(f"{position} {length} ".encode() + chunk)
        return digest.hexdigest()

    def _chunks(self, part: Range) -> Iterator[tuple[int, int]]:
        start, length = part
        end = self.size if length is None else start + length
        if not 0 <= start <= end <= self.size:
            raise LabError(f"bytes {start}..{end} are not on a disk of {self.size} bytes")
        for position in range(start, end, _CHUNK):
            yield position, min(_CHUNK, end - position)

    def keep_moment(self) -> None:
        """Keep the content of this very moment aside, where the store can do that at once."""
        if not clone(self.file, self._moment):
            self._moment.unlink()

    def return_to_moment(self) -> None:
        """Forget everything that was written since `keep_moment`; the disk must be attached to nothing."""
        if self._moment.exists():
            self._moment.rename(self.file)

    def remove(self) -> None:
        """Take the disk away; safe to call twice."""
        self.file.unlink(missing_ok=True)
        self._moment.unlink(missing_ok=True)
