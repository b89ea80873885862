# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A raw image on a bigger disk: its root file system grown, with a swap partition behind it if that is wanted."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

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


def put(raw: Path, files: Mapping[str, tuple[str, int]]) -> None:
    """Write files (absolute path → content, mode) of root into the root file system of a disk that nobody uses."""
    with raw.open("rb") as disk:
        partitions = partition_table.parse(disk.read(partition_table.HEAD))
    root = max((part for part in partitions if part.kind != _TYPE.lower()), key=lambda part: part.size)
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number, (path, (content, mode)) in enumerate(files.items()):
            source = Path(folder) / str(number)
            source.write_text(content)
            lines += [f"mkdir {parent}" for parent in reversed(PurePosixPath(path).parents[:-1])]
            lines += [f"rm {path}", f"write {source} {path}"]
            lines += [f"sif {path} mode 0{stat.S_IFREG | mode:o}", f"sif {path} uid 0", f"sif {path} gid 0"]
        script = Path(folder) / "script"
        script.write_text("\n".join(lines) + "\n")
        device = f"{raw}?offset={root.start}"
        _run(["debugfs", "-w", "-f", str(script), device])
        for path, (content, _mode) in files.items():
            # debugfs succeeds whatever its commands did: folders that were there already are no error, this is.
            shown = subprocess.run(["debugfs", "-R", f"cat {path}", device], capture_output=True, text=True, check=True)
            if shown.stdout != content:
                raise ImageError(f"{path} could not be written into {raw.name}: {shown.stderr.strip()}")


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
