# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the disks of a machine say about themselves, and what a kernel calls them at one boot (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lab.errors import LabError

from .base import DiskSpec, Hardware

_LONGEST = {"scsi": (36, 16), "sata": (20, 40), "nvme": (20, 40)}  # serial, model: the fields of the protocols
_WWN = {"scsi": r"0x[0-9a-f]{16}", "sata": r"0x[0-9a-f]{16}", "nvme": r"eui\.[0-9a-f]{16}"}
_TEXT = re.compile(r"[A-Za-z0-9_.:+-]+( [A-Za-z0-9_.:+-]+)*")


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
