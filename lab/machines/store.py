# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks of machines as sparse files, copied without moving bytes where the file system can share them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import threading
from pathlib import Path

from lab.errors import LabError

from . import loop
from .host_commands import find, run, unmount

_FICLONE = 0x40049409


class Store:
    """A folder for disks; `Store.open` sees to it that copies are cheap there."""

    def __init__(self, folder: Path, mounted: bool = False) -> None:
        """Use `Store.open`."""
        self.folder = folder
        self._mounted = mounted
        self._templates: dict[tuple[str, int, int], Path] = {}
        self._copying = threading.Lock()

    @classmethod
    async def open(cls, folder: Path, own_file_system: bool) -> Store:
        """A store in ``folder``, on a file system of its own if that is allowed and the host's cannot share blocks."""
        folder.mkdir(parents=True, exist_ok=True)
        if not own_file_system or shares_blocks(folder) or not find("mkfs.xfs"):
            return cls(folder)
        image = folder.with_name(folder.name + ".xfs")
        with image.open("wb") as file:
            space = shutil.disk_usage(folder).free
            file.truncate(max(space, 1 << 30) // (1 << 20) * (1 << 20))
        await run("mkfs.xfs", "-q", "-m", "reflink=1", "-K", str(image))
        device = loop.Loop(image)
        try:
            await run("mount", "-t", "xfs", "-o", "discard,nouuid,noatime", str(device.device), str(folder))
        finally:
            device.hand_over()  # the mount holds it from here on
        return cls(folder, mounted=True)

    async def copy(self, source: Path, target: Path, size: int | None = None) -> int:
        """Copy a raw image into a new disk of ``size`` bytes; returns the bytes that the disk occupies."""
        return await asyncio.to_thread(self._copy, source, target, size)

    def _copy(self, source: Path, target: Path, size: int | None) -> int:
        content = source.stat().st_size
        if size is not None and content > size:
            raise LabError(f"image {source.name} has {content} bytes, more than the disk of {size} bytes")
        copy_sparse(self._near(source) if self._mounted else source, target)
        if size is not None:
            os.truncate(target, size)
        return target.stat().st_blocks * 512

    def _near(self, source: Path) -> Path:
        """The same image inside our file system, copied there once, so that every further copy shares its blocks."""
        if source.is_relative_to(self.folder):
            return source
        state = source.stat()
        key = (str(source), state.st_mtime_ns, state.st_size)
        with self._copying:  # machines are created in threads; the second one waits for the whole copy
            if key not in self._templates:
                near = self.folder / f".template-{len(self._templates)}"
                partial = near.with_name(f"{near.name}.part")
                copy_sparse(source, partial)
                partial.rename(near)
                self._templates[key] = near
            return self._templates[key]

    async def close(self) -> None:
        await discard(self.folder)


async def discard(folder: Path) -> bool:
    """Remove a store, also one that a dead lab left mounted; whether there was one."""
    image = folder.with_name(folder.name + ".xfs")
    there = folder.exists() or image.exists()
    devices = loop.mounted_at(folder)
    await unmount(folder)
    shutil.rmtree(folder, ignore_errors=True)
    image.unlink(missing_ok=True)
    for _attempt in range(100):  # the kernel lets go of the device in the background
        loop.give_back()
        if not any(loop.attached(number) for number in devices):
            break
        await asyncio.sleep(0.02)
    return there


def shares_blocks(folder: Path) -> bool:
    """Whether files in this folder can be copied by sharing their blocks."""
    one, two = folder / ".probe-one", folder / ".probe-two"
    try:
        one.write_bytes(b"x" * 4096)
        return clone(one, two)
    finally:
        one.unlink(missing_ok=True)
        two.unlink(missing_ok=True)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file: blocks shared where possible, else only the data between its holes."""
    command = ["cp", "--reflink=auto", "--sparse=auto", "--no-preserve=mode", str(source), str(target)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise LabError(done.stderr.strip())


def clone(source: Path, target: Path) -> bool:
    """Make ``target`` share the blocks of ``source``; False (and an empty file) where that is impossible."""
    with source.open("rb") as reader, target.open("wb") as writer, contextlib.suppress(OSError):
        fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        return True
    return False
