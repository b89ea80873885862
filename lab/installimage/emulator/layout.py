# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A config → the same partition table for each drive, and the arrays over them (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from .config import ALL, Config, Part
from .validation import sizes_on_a_drive

SECTOR = 512
MIB = (1 << 20) // SECTOR  # sectors
_TWO_TIB = 1 << 41
_GPT = {
    "linux": "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
    "swap": "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F",
    "lvm": "E6D6D379-F507-44C2-A23C-238F2A3DF928",
    "raid": "A19D880F-05FC-4D3B-A006-743F0F84911E",
    "esp": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
    "bios_grub": "21686148-6449-6E6F-744E-656564454649",
}
_DOS = {"linux": "83", "swap": "82", "lvm": "8e", "raid": "fd", "esp": "ef"}


@dataclass(frozen=True)
class Partition:
    """One partition; start and length in sectors of 512 bytes."""

    number: int
    start: int
    length: int
    kind: str  # a key of the tables above
    part: Part | None = None  # None: room for the boot loader


@dataclass(frozen=True)
class Array:
    """A software RAID over the same partition of each drive."""

    name: str  # /dev/md/N
    level: str
    metadata: str
    partition: Partition


@dataclass(frozen=True)
class Layout:
    """What every used drive gets."""

    gpt: bool
    partitions: tuple[Partition, ...]

    def table(self) -> str:
        """The partition table in sfdisk's words."""
        types = _GPT if self.gpt else _DOS
        lines = ["label: gpt" if self.gpt else "label: dos", "unit: sectors"]
        for one in self.partitions:
            lines.append(f"{one.number}: start={one.start}, size={one.length}, type={types[one.kind]}")
        return "\n".join(lines) + "\n"


def plan(config: Config, drive_bytes: int, uefi: bool) -> Layout:
    """Lay out a drive of this size (the smallest, where there are several)."""
    gpt = uefi or config.force_gpt or drive_bytes > _TWO_TIB or len(config.parts) > 3
    position = 2 * MIB if gpt else MIB
    end = drive_bytes // SECTOR // MIB * MIB - MIB  # room for the second table and for array superblocks
    found = []
    for number, (part, size) in enumerate(zip(config.parts, sizes_on_a_drive(config), strict=True), 1):
        length = end - position if size == ALL else min(int(size) * MIB, end - position)
        found.append(Partition(number, position, length, _kind(part, config), part))
        position += length
    if gpt and not uefi and not any(one.kind == "bios_grub" for one in found):
        found.append(Partition(len(found) + 1, MIB, MIB, "bios_grub"))
    return Layout(gpt, tuple(found))


def _kind(part: Part, config: Config) -> str:
    if part.filesystem == "esp" or part.filesystem == "bios_grub":
        return part.filesystem
    if config.raid:
        return "raid"
    if part.mount == "lvm":
        return "lvm"
    return "swap" if part.filesystem == "swap" else "linux"


def arrays(config: Config, layout: Layout) -> list[Array]:
    """The arrays, one for each partition; what a boot loader or a firmware reads is always mirrored."""
    found: list[Array] = []
    for partition in layout.partitions if config.raid else ():
        part = partition.part
        if part is None or partition.kind == "bios_grub":
            continue
        mirrored = part.mount in ("/boot", "/boot/efi") or (part.mount == "swap" and config.level != "0")
        # A firmware knows nothing of arrays: with the superblock at the end, the ESP looks like a plain FAT to it.
        metadata = "1.0" if part.mount == "/boot/efi" else "1.2"
        found.append(Array(f"/dev/md/{len(found)}", "1" if mirrored else config.level, metadata, partition))
    return found
