# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what is in the first sectors of a disk: boot code, partitions (GPT, or primary ones of an MBR), boot loader."""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
HEAD = 34 * SECTOR  # MBR, GPT header and its usual 128 entries
ESP = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
_PROTECTIVE = 0xEE
_EXTENDED = (0x05, 0x0F, 0x85)
_LOADER = b"BOOTX64 EFI"  # the removable-path loader as a FAT directory entry
_MBR_ESP = "0xef"
_CHUNK = 1 << 20


class NoTable(ValueError):
    """There is no usable partition table; the message says what was found instead."""


@dataclass(frozen=True)
class Partition:
    """One partition; start and size in bytes."""

    number: int
    kind: str  # GPT type in lower case, or the MBR type as 0xNN
    start: int
    size: int


def read(fd: int, disk_bytes: int) -> list[Partition]:
    """The partitions of the disk open as ``fd``, those that do not fit on it left out."""
    head = os.pread(fd, HEAD, 0)
    return [part for part in parse(head) if part.size > 0 and part.start + part.size <= disk_bytes]


def parse(head: bytes) -> list[Partition]:
    """The partitions named in the first sectors of a disk."""
    if len(head) < SECTOR or head[510:512] != b"\x55\xaa":
        raise NoTable("the disk has no partition table")
    entries = [(number, head[430 + 16 * number : 446 + 16 * number]) for number in range(1, 5)]
    if any(entry[4] == _PROTECTIVE for _number, entry in entries):
        return _gpt(head)
    found = []
    for number, entry in entries:
        start, sectors = struct.unpack_from("<II", entry, 8)
        if entry[4] and entry[4] not in _EXTENDED and sectors:
            found.append(Partition(number, f"0x{entry[4]:02x}", start * SECTOR, sectors * SECTOR))
    if not found:
        raise NoTable("the partition table of the disk is empty")
    return found


def _gpt(head: bytes) -> list[Partition]:
    if head[SECTOR : SECTOR + 8] != b"EFI PART":
        raise NoTable("the GUID partition table of the disk is damaged")
    start, count, size = struct.unpack_from("<QII", head, SECTOR + 72)
    found = []
    if start != 2 or size < 128:
        raise NoTable("the GUID partition table of the disk has an unusual layout")
    for number in range(1, min(count, (len(head) - 2 * SECTOR) // size) + 1):
        entry = head[2 * SECTOR + (number - 1) * size :][:size]
        kind = uuid.UUID(bytes_le=entry[:16])
        first, last = struct.unpack_from("<QQ", entry, 32)
        if kind.int:
            found.append(Partition(number, str(kind), first * SECTOR, (last - first + 1) * SECTOR))
    if not found:
        raise NoTable("the partition table of the disk is empty")
    return found


def why_not(disk: Path, uefi: bool) -> str | None:
    """Why a machine does not boot from ``disk``; None when its firmware, legacy or UEFI, finds something to start."""
    fd = os.open(disk, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(fd, 34 * SECTOR, 0)
        try:
            partitions = parse(head)
        except NoTable as reason:
            return f"No bootable device: {reason}."
        if (
            any(_has_loader(fd, part) for part in partitions if part.kind in (ESP, _MBR_ESP))
            if uefi
            else any(head[:440])
        ):
            return None
    finally:
        os.close(fd)
    if uefi:
        return "No bootable device: no EFI/BOOT/BOOTX64.EFI in an EFI system partition."
    return "No bootable device: no boot code in the first sector."


def _has_loader(fd: int, partition: Partition) -> bool:
    """Whether a FAT partition names the loader in one of its directories."""
    if os.pread(fd, SECTOR, partition.start)[510:] != b"\x55\xaa":
        return False
    position, end, before = partition.start, partition.start + partition.size, b""
    while position < end:
        chunk = os.pread(fd, min(_CHUNK, end - position), position)
        if not chunk:
            return False
        if _LOADER in before + chunk:
            return True
        before = chunk[-len(_LOADER) :]
        position += len(chunk)
    return False
