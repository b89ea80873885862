# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A download that is kept in RAM when it fits there, so that it is proven before the disk is touched."""

from __future__ import annotations

import itertools
import os

from commands.parts.decompress import memory_limit
from commands.parts.digest import Digest
from commands.parts.progress import Progress
from commands.parts.sizes import CHUNK


class Download:
    """The bytes of a source: from RAM, proven and as often as needed, or as they come, once."""

    def __init__(self, source, digest: Digest, progress: Progress):
        self.source, self.digest = source, digest
        self.shown = source.shown
        chunks = source.chunks()
        first = next(chunks, b"")
        self.size = source.size
        self.memory = -1
        self.rest = itertools.chain([first], chunks)
        if self.size is None or self.size * 3 > memory_limit() * 2:  # a third of the free memory
            return
        self.memory = os.memfd_create("image")
        for chunk in digest.watch(self.rest):
            view = memoryview(chunk)
            while view:
                view = view[os.write(self.memory, view) :]
            progress.tick(
                lambda: "fetching: %d %%" % (100 * source.received // max(self.size or 0, 1)),
                lambda: (source.received, self.size),
            )
        digest.check()

    @property
    def kept(self) -> bool:
        """Whether it is in RAM."""
        return self.memory >= 0

    @property
    def received(self) -> int:
        """How many bytes have come over the network."""
        return self.source.received

    def chunks(self):
        """Yield the bytes."""
        if not self.kept:
            yield from self.rest
            return
        place = 0
        while place < (self.size or 0):
            chunk = os.pread(self.memory, CHUNK, place)
            place += len(chunk)
            yield chunk

    def proof(self) -> Digest:
        """Return the digest that is still to be kept: none for what is proven."""
        return Digest(self.digest.algorithm, "none") if self.kept else self.digest

    def close(self) -> None:
        """Give the memory free."""
        if self.kept:
            os.close(self.memory)
            self.memory = -1
