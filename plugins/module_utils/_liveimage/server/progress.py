# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How far each reader has come with each image: a line in the log now and then, and numbers for metrics."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence

from .registry import Image

LOG = logging.getLogger("kubenode.images")
_PARTS = 1024  # an image is watched in so many parts
_MOST_READERS = 2048
_EVERY = 10.0  # seconds between two lines of one reader
_MIB = 1024 * 1024


class _Reader:
    __slots__ = ("done", "etag", "logged", "parts", "step", "touched")

    def __init__(self, etag: str, size: int) -> None:
        self.etag = etag
        self.step = -(-size // _PARTS)
        self.parts = bytearray(_PARTS)
        self.touched = 0
        self.logged = float("-inf")
        self.done = False


class Progress:
    """What was sent to whom."""

    def __init__(self) -> None:
        """Nobody has read anything."""
        self._readers: OrderedDict[tuple[str, str], _Reader] = OrderedDict()
        self.fetched: dict[str, int] = {}

    def sent(self, image: Image, address: str, spans: Sequence[tuple[int, int]], length: int, now: float) -> None:
        """``length`` bytes of these spans of an image were sent to an address."""
        if not length:
            return
        self.fetched[image.host] = self.fetched.get(image.host, 0) + length
        reader = self._reader(image, address)
        if not reader.done:
            self._touch(reader, image, address, spans, length, now)

    def ranged(self, image: Image, address: str, start: int, stop: int, now: float) -> None:
        """The same for a small range that was sent whole, which nearly always touches nothing new."""
        self.fetched[image.host] = self.fetched.get(image.host, 0) + stop - start
        reader = self._reader(image, address)
        part = start // reader.step
        known = reader.parts[part] and stop <= (part + 1) * reader.step and now - reader.logged < _EVERY
        if not known and not reader.done:
            self._touch(reader, image, address, ((start, stop),), stop - start, now)

    def _reader(self, image: Image, address: str) -> _Reader:
        key = (image.host, address)
        reader = self._readers.get(key)
        if reader is None or reader.etag != image.etag:
            reader = self._readers[key] = _Reader(image.etag, image.overlay.size)
            if len(self._readers) > _MOST_READERS:
                self._readers.popitem(last=False)
        return reader

    def _touch(
        self, reader: _Reader, image: Image, address: str, spans: Sequence[tuple[int, int]], length: int, now: float
    ) -> None:
        parts, step, size = reader.parts, reader.step, image.overlay.size
        for start, stop in spans:
            stop = min(stop, start + length)
            length -= stop - start
            for part in range(start // step, -(-stop // step)):
                if not parts[part]:
                    parts[part] = 1
                    reader.touched += 1
        reader.done = reader.touched * step >= size
        if reader.done or now - reader.logged >= _EVERY:
            reader.logged = now
            total = -(-size // _MIB)
            have = total if reader.done else reader.touched * step // _MIB
            LOG.info("%s: %s fetched %d of %d MiB", image.host, address, have, total)

    def forget(self, host: str) -> None:
        """A host has no image any more."""
        self.fetched.pop(host, None)
        for key in [key for key in self._readers if key[0] == host]:
            del self._readers[key]
