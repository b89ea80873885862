# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A raw image on a bigger disk: its root file system grown, with a swap partition behind it if that is wanted."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from lab.machines import partition_table
from lab.machines.partition_table import SECTOR
from lab.machines.store import copy_sparse

from .errors import ImageError

_TYPE = "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
_ALIGNMENT = 1 << 20
_SFDISK = ("sfdisk", "--quiet", "--no-reread", "--no-tell-kernel")
_HEADER = 4096  # bytes that mkswap writes: one page


def grow(source: Path, target: Path, disk_bytes: int, swap_bytes: int = 0) -> None:
    """Copy the raw image to the new disk ``target`` of this size and let its last partition, the root, fill it.

    With ``swap_bytes`` the end is a swap partition that systemd finds by itself, without a line in fstab.
    """
    copy_sparse(source, target)
    end = (disk_bytes - swap_bytes - 2 * _ALIGNMENT) // _ALIGNMENT * _ALIGNMENT
    if end < source.stat().st_size:
        raise ImageError(f"{source.name} with {swap_bytes} bytes of swap needs a bigger disk than {disk_bytes} bytes")
    with target.open("rb") as disk:
        partitions = partition_table.parse(disk.read(partition_table.HEAD))
    root = max(partitions, key=lambda part: part.start)
    # resize2fs works on a part of a file, but cannot tell how big that part is, and cuts the file behind it.
    _run(["resize2fs", "-f", f"{target}?offset={root.start}", f"{(end - root.start) // 1024}K"])
    os.truncate(target, disk_bytes)
    _run([*_SFDISK, "--relocate", "gpt-bak-std", str(target)])
    _run([*_SFDISK, "-N", str(root.number), str(target)], f", {(end - root.start) // SECTOR}\n")
    if swap_bytes:
        number = min(set(range(1, 17)) - {part.number for part in partitions})
        line = f"start={end // SECTOR}, size={swap_bytes // SECTOR}, type={_TYPE}, name=swap\n"
        _run([*_SFDISK, "-N", str(number), str(target)], line)
        _make_swap(target, end, swap_bytes)


def _make_swap(disk: Path, start: int, size: int) -> None:
    with tempfile.NamedTemporaryFile(dir=disk.parent) as swap:
        swap.truncate(size)
        _run(["mkswap", swap.name])
        header = os.pread(swap.fileno(), _HEADER, 0)
    with disk.open("r+b") as file:
        file.seek(start)
        file.write(header)


def _run(command: list[str], text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{command[0]} failed (status {done.returncode}): {(done.stderr or done.stdout).strip()}")
