# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disks and the console of one machine: files in the store, and the rules that every kind shares for them."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from lab.errors import LabError

from .base import WHOLE, BootSource, DiskSpec, Hardware, Machine, Range
from .identity import Identity, identities
from .store import Store, clone, copy_sparse

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


class MachineWithDisks(Machine):
    """What every kind of machine does with its disks and its console; a kind adds how its guest lives."""

    def __init__(
        self,
        store: Store,
        console: Path,
        hardware: Hardware,
        firmware: Callable[[], BootSource],
        on_off: Callable[[], None],
    ) -> None:
        """A machine without disks, which prints into ``console``; `create` puts the disks in."""
        super().__init__(hardware, firmware, on_off)
        self._store = store
        self._identities = identities(hardware)
        self._disks = [self._disk(index, disk) for index, disk in enumerate(self._identities)]
        self._console = Console(console)
        self._switch = asyncio.Lock()  # one change of power or hardware at a time

    async def create(self, image: Path | None) -> None:
        for disk in self._disks:
            await disk.install(image if disk is self._disks[0] else None)

    def console(self) -> str:
        """What was printed since the last power on."""
        return self._console.text()

    @property
    def disks(self) -> tuple[DiskSpec, ...]:
        return tuple(disk.spec() for disk in self._identities)

    async def copy_disk(self, target: Path) -> int:
        return await asyncio.to_thread(self._disks[0].copy_to, target)

    async def write_disk(self, image: Path | None) -> None:
        if self.running:
            raise LabError(f"machine {self.hardware.name} is on; its disk can only be replaced while it is off")
        await self._disks[0].install(image)

    async def disk_digest(self, index: int, part: Range = WHOLE) -> str:
        return await asyncio.to_thread(self._disks[index].digest, part)

    async def disk_mark(self, index: int, part: Range = WHOLE) -> str:
        return await asyncio.to_thread(self._disks[index].mark, part)

    async def add_disk(self, disk: DiskSpec, image: Path | None) -> None:
        async with self._switch:
            await self._put_in(len(self._disks), disk, image)

    async def replace_disk(self, index: int, disk: DiskSpec, image: Path | None) -> None:
        async with self._switch:
            if self.running:
                raise LabError(f"machine {self.hardware.name} is on; its disks can only be replaced while it is off")
            await self._put_in(index, disk, image)

    def _disk(self, index: int, identity: Identity) -> Disk:
        return Disk(self._store, f"m{self.hardware.machine_id}-{index}", identity.size_bytes)

    async def _put_in(self, index: int, disk: DiskSpec, image: Path | None) -> None:
        hardware = self._with_disk(index, disk)
        found = identities(hardware)
        new = self._disk(index, found[index])
        await new.install(image)
        self.hardware, self._disks[index:] = hardware, [new, *self._disks[index + 1 :]]
        self._identities = found
