# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The answer that nearly every request gets, on a short way: a few KiB of the base, in one piece.

Its head is a GET of HTTP/1.1 with one Host and one Range, and with no field that anybody here or the framing of HTTP
cares about. What is not exactly that goes the way of every other request, and would get the same answer there.
"""

from __future__ import annotations

import os
import re

from ..overlay import BaseRange
from .answers import Answers
from .registry import Image

_MOST = 64 * 1024  # bytes of a range that goes through memory
_MOST_HEAD = 2048  # bytes
_OTHER = (
    rb"(?:(?!(?i:connection(?!:[ \t]*keep-alive\r)|content-length|host|if-|proxy-connection|range|transfer-|upgrade))"
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*"
)
_HOST = rb"(?i:host):[ \t]*[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*\r\n"
_RANGE = rb"(?i:range):[ \t]*bytes=([0-9]{1,19})-([0-9]{1,19})\r\n"
_HEAD = re.compile(
    rb"GET (/[!\"$->@-~]*)(?:\?[!-~]*)? HTTP/1\.1\r\n%(other)s"
    rb"(?:%(host)s%(other)s%(range)s|%(range)s%(other)s%(host)s)%(other)s\r\n"
    % {b"other": _OTHER, b"host": _HOST, b"range": _RANGE}
)


def asked(data: bytes) -> tuple[str, int, int] | None:
    """The path, the first and the last byte that these bytes ask for; None: they are no such head (pure)."""
    found = _HEAD.fullmatch(data) if len(data) <= _MOST_HEAD else None
    if found is None:
        return None
    path, first, last, sooner, later = found.groups()  # the range behind Host, or before it
    return path.decode("ascii"), int(first or sooner), int(last or later)


def answer(answers: Answers, data: bytes, now: float) -> tuple[bytes, Image, int, int] | None:
    """Head and body for these bytes of a request, the image and the range of it that they are.

    ``now``: of the monotonic clock, in seconds. OSError: the base cannot be read.
    """
    wanted = asked(data)
    if wanted is None:
        return None
    path, start, last = wanted
    registered, length = answers.registered(path), last + 1 - start
    image = None if registered is None else answers.registry.get(registered)
    if image is None or not 0 < length <= _MOST or not image.file.intact(now):
        return None
    segment, at = image.overlay.place(start)
    if not isinstance(segment, BaseRange) or at + length > segment.length:
        return None
    body = os.pread(image.file.fd, length, segment.offset + at)
    if len(body) != length:
        raise OSError("the base became shorter")
    return answers.range_head(image, start, last + 1) + body, image, start, last + 1
