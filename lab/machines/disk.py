# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk of one machine: a sparse file in the store, plus the rules every kind of machine shares for it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from .base import Hardware
from .identity import identities
from .store import Store, clone, copy_sparse


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

    def digest(self) -> str:
        """SHA-256 of all bytes, those that were never written included."""
        with self.file.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

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
    return [
        Disk(store, f"m{hardware.machine_id}-{index}", disk.size_bytes)
        for index, disk in enumerate(identities(hardware))
    ]


async def install_all(disks: list[Disk], image: Path | None) -> None:
    """Put in all disks of a machine, empty but for ``image`` on the first one."""
    for disk in disks:
        await disk.install(image if disk is disks[0] else None)
