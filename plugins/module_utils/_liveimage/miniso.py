# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The recipe inside a CoreOS ISO by which it becomes a minimal ISO: one that fetches its root file system.

A minimal ISO needs no file of its own: it is an overlay of ranges of the full one and of a few bytes that are packed in
the recipe.
"""

from __future__ import annotations

import hashlib
import lzma

from .errors import ImageError
from .isofs import SECTOR, IsoFiles
from .overlay import Bytes, Overlay, Segment, open_overlay

DATA = "/coreos/miniso.dat"
_MAGIC = b"MINISO\0\0"
_VERSION = 1
_LIMIT = 1024 * 1024
_MOST_ENTRIES = 10_000
_MOST_BYTES = 64 * 1024 * 1024  # of what the recipe itself unpacks to
_XZ_MEMORY = 256 * 1024 * 1024


class _Reader:
    """bincode with variable-length integers, as far as the recipe uses it."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) != length:
            raise ImageError(f"{DATA} is cut off")
        self._at += length
        return found

    def number(self) -> int:
        first = self.take(1)[0]
        if first < 251:
            return first
        if first == 255:
            raise ImageError(f"{DATA} is damaged")
        return int.from_bytes(self.take({251: 2, 252: 4, 253: 8, 254: 16}[first]), "little")


def minimal(files: IsoFiles) -> Overlay:
    """The minimal ISO as an overlay of the full one; its bytes are proven against the digest in the recipe."""
    data = files.read(DATA, _LIMIT)
    if data is None or not data.startswith(_MAGIC):
        raise ImageError(f"{files.overlay.base.path} has no recipe for a minimal ISO ({DATA})")
    reader = _Reader(data)
    reader.take(len(_MAGIC))
    version = reader.number()
    if version != _VERSION:
        raise ImageError(f"{DATA} is of version {version}; only {_VERSION} is known")
    reader.take(reader.number())  # who made it
    entries = []
    count = reader.number()
    if not 0 < count <= _MOST_ENTRIES:
        raise ImageError(f"{DATA} has {count} entries")
    for _index in range(count):
        there, here, length = reader.number(), reader.number(), reader.number()
        entries.append((there * SECTOR, here * SECTOR, length))
    digest = reader.take(32)
    rest = _unpacked(reader.take(reader.number()))
    found = Overlay(files.overlay.base, _segments(files.overlay, entries, rest))
    with open_overlay(found) as file:
        total = hashlib.sha256()
        for block in iter(lambda: file.read(1024 * 1024), b""):
            total.update(block)
    if total.digest() != digest:
        raise ImageError(
            f"the minimal ISO of {files.overlay.base.path} has another digest than its recipe says; the base was "
            "changed, use the published one"
        )
    return found


def _segments(full: Overlay, entries: list[tuple[int, int, int]], rest: bytes) -> list[Segment]:
    found: list[Segment] = []
    at = used = 0
    if sum(length for _there, _here, length in entries) + len(rest) > full.size:
        raise ImageError(f"{DATA} is damaged: its minimal image is larger than the full one")
    for there, here, length in entries:
        gap = there - at
        if gap < 0 or used + gap > len(rest):
            raise ImageError(f"{DATA} is damaged: its entries overlap or reach too far")
        if here + length > full.size:
            raise ImageError(f"{DATA} is damaged: it takes bytes from outside the image")
        found += [Bytes(rest[used : used + gap]), *full.slice(here, here + length)]
        used += gap
        at = there + length
    return [*found, Bytes(rest[used:])]


def _unpacked(data: bytes) -> bytes:
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
        found = unpacker.decompress(data, _MOST_BYTES + 1)
    except lzma.LZMAError as error:
        raise ImageError(f"{DATA} is damaged: {error}") from error
    if len(found) > _MOST_BYTES or not unpacker.eof:
        raise ImageError(f"{DATA} is cut off or larger than {_MOST_BYTES} bytes")
    return found
