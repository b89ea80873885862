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
    __slots__ = ("done", "etag", "logged", "parts", "touched")

    def __init__(self, etag: str) -> None:
        self.etag = etag
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
        key = (image.host, address)
        reader = self._readers.get(key)
        if reader is None or reader.etag != image.etag:
            reader = self._readers[key] = _Reader(image.etag)
            if len(self._readers) > _MOST_READERS:
                self._readers.popitem(last=False)
        if reader.done:
            return
        size = image.overlay.size
        step = -(-size // _PARTS)
        for start, stop in spans:
            stop = min(stop, start + length)
            length -= stop - start
            for part in range(start // step, -(-stop // step)):
                if not reader.parts[part]:
                    reader.parts[part] = 1
                    reader.touched += 1
        reader.done = reader.touched * step >= size
        if reader.done or now - reader.logged >= _EVERY:
            reader.logged = now
            have = min(size, reader.touched * step)
            LOG.info("%s: %s fetched %d of %d MiB", image.host, address, have // _MIB, -(-size // _MIB))

    def forget(self, host: str) -> None:
        """A host has no image any more."""
        self.fetched.pop(host, None)
        for key in [key for key in self._readers if key[0] == host]:
            del self._readers[key]
