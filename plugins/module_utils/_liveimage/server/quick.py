# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The answer that nearly every request gets, on a short way: a few KiB of the base, in one piece.

Whatever is not exactly that (None) goes the way of every other request, and would get the same answer there.
"""

from __future__ import annotations

import os

from ..overlay import BaseRange
from .answers import Answers
from .registry import Image
from .template import Template

_MOST = 64 * 1024  # bytes of a range that goes through memory
_ZERO = 48  # the digit
_LASTS = 0.5  # seconds until date and path of a plan are looked at anew


class Plan:
    """What is the same in many answers on one connection."""

    __slots__ = ("_answers", "_begin", "_delta", "_digits", "_end", "_length", "_registered", "_size", "_tail", "_top",
                 "count", "image", "template", "until")  # fmt: skip

    def __init__(self, answers: Answers, template: Template, address: str, now: float) -> None:
        """``now``: of the monotonic clock, in seconds."""
        self._answers, self.template, self.until = answers, template, now + _LASTS
        self._digits = template.digits
        self._registered = answers.registered(template.path)
        self.image: Image | None = None
        if not template.headers and not template.old:
            self.image = self._there()
        if self.image is None:
            return
        self.count = answers.ledger.counter(self.image, address)
        self._size = self.image.overlay.size
        self._top = answers.start(206) + self.image.head + b"Content-Range: bytes "
        self._tail, self._length = b"", -1  # what follows the range in the head, for ranges of this length
        self._begin = self._end = self._delta = 0  # bytes of the image that are one piece of the base, and how far off

    def answer(self, data: bytes, now: float) -> tuple[bytes, int, int] | None:
        """Head and body for these bytes of a request, and the range that they are. OSError: the base cannot be read."""
        image, digits = self.image, self._digits(data)
        if image is None or digits is None or self._there() is not image:
            return None
        first, last = digits
        start, stop = int(first), int(last) + 1
        length = stop - start
        if not 0 < length <= _MOST or stop > self._size or first[0] == _ZERO or last[0] == _ZERO:
            return None
        if not self._begin <= start < self._end:
            self._find(image, start)
        if stop > self._end or not image.file.intact(now):
            return None
        if length != self._length:
            self._length, self._tail = length, b"/%d\r\nContent-Length: %d\r\n\r\n" % (self._size, length)
        body = os.pread(image.file.fd, length, start + self._delta)
        if len(body) != length:
            raise OSError("the base became shorter")
        return b"".join((self._top, first, b"-", last, self._tail, body)), start, stop

    def _there(self) -> Image | None:
        """The image behind the path now."""
        return None if self._registered is None else self._answers.registry.get(self._registered)

    def _find(self, image: Image, start: int) -> None:
        """Look for the piece of the base that this byte is in."""
        segment, at = image.overlay.place(start)
        self._begin = self._end = 0
        if isinstance(segment, BaseRange):
            self._begin, self._end = start - at, start - at + segment.length
            self._delta = segment.offset - self._begin
