# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disks and the console of one machine: files in the store, and the rules that every kind shares for them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lab.errors import LabError

from .base import WHOLE, Hardware, Range
from .identity import Identity, identities
from .store import Store, clone, copy_sparse

_TAIL = 64 << 10


class Console:
    """Where a machine prints."""

    def __init__(self, file: Path) -> None:
        """Print into ``file``."""
        self.file = file

    def clear(self) -> None:
        """Begin anew (power on)."""
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


_CHUNK = 1 << 20


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


def disks_of(hardware: Hardware, store: Store) -> list[Disk]:
    """The disks of a machine in the order of its hardware; none exists before `Disk.install`."""
    return [disk_of(hardware, store, index, disk) for index, disk in enumerate(identities(hardware))]


def disk_of(hardware: Hardware, store: Store, index: int, identity: Identity) -> Disk:
    """One disk of a machine."""
    return Disk(store, f"m{hardware.machine_id}-{index}", identity.size_bytes)


async def install_all(disks: list[Disk], image: Path | None) -> None:
    """Put in all disks of a machine, empty but for ``image`` on the first one."""
    for disk in disks:
        await disk.install(image if disk is disks[0] else None)
