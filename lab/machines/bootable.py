# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the firmware finds on a disk: something that it would start, or the reason why nothing comes up."""

from __future__ import annotations

import os
from pathlib import Path

from .partition_table import ESP, SECTOR, NoTable, Partition, parse

_LOADER = b"BOOTX64 EFI"  # the removable-path loader as a FAT directory entry
_MBR_ESP = "0xef"
_CHUNK = 1 << 20


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
