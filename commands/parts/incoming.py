# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What comes in: a download, hashed, told by its first bytes and decompressed."""

from __future__ import annotations

import itertools

from commands.parts.decompress import decompress
from commands.parts.digest import Digest
from commands.parts.errors import Refused
from commands.parts.formats import compression, zstd_size
from commands.parts.stream import blocks


class Incoming:
    """The decompressed bytes of a download, once.

    `source` has chunks(), size, received and shown. `size` is that of the decompressed bytes, where it is known.
    """

    def __init__(self, source, digest: Digest):
        self.source, self.digest = source, digest
        self.shown = source.shown
        #: Bytes that came in, and decompressed ones that went out of blocks().
        self.read = self.given = 0
        chunks = self._counted(digest.watch(source.chunks()))
        first = b""
        while len(first) < 64:  # a connection may drop after the first bytes
            more = next(chunks, b"")
            first += more
            if not more:
                break
        self.kind = compression(first)
        self.size = zstd_size(first) if self.kind == "zst" else source.size if self.kind == "none" else None
        if digest.expected == "none" and self.kind == "none" and self.size is None:
            raise Refused("image: neither digest nor length are known, a truncated image would pass; give #sha256=")
        self.stream = blocks(decompress(itertools.chain([first], chunks), self.kind))
        self.head = next(self.stream, b"")

    def blocks(self):
        """Yield the bytes in blocks of BLOCK, the last one shorter; proven only after check()."""
        for block in itertools.chain([self.head], self.stream):
            yield block
            self.given += len(block)

    def count(self) -> tuple:
        """Return (bytes done, bytes in all or None): decompressed where their number is known, else as they come."""
        return (self.given, self.size) if self.size else (self.read, self.source.size)

    def _counted(self, chunks):
        for chunk in chunks:
            self.read += len(chunk)
            yield chunk

    def check(self) -> None:
        """Refuse what came unless its digest is the promised one; all of it must have been read."""
        for _rest in self.stream:
            pass
        self.digest.check()

    def share(self) -> str:
        """Say how much of the download has come, for a progress message."""
        if not self.source.size:
            return ""
        return ", %d %% of the download" % (100 * self.source.received // self.source.size)
