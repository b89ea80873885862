# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Requests that need no parser: a reader of ranges sends the same head again and again, with other digits in one place.

A head that the parser took apart is remembered without the digits of its range. Whatever equals it but for these digits
means the same with another range, since digits end neither a value nor a header (pure).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_MARK = b"ange: bytes="
_SKIP = len(_MARK)
_LINE = (b"\r\nR", b"\r\nr")
_END = b"\r\n\r\n"
_RANGE = re.compile(rb"([0-9]{1,19})-([0-9]{1,19})\Z")
_LEARNT = re.compile(rb"[0-9]+-?[0-9]*|-[0-9]+")
_MOST_BYTES = 512  # of a head that is remembered


class Template:
    """A GET with one range, but for the range; after its answer the connection stays."""

    __slots__ = ("cut", "headers", "old", "path", "prefix", "skip", "suffix")

    def __init__(self, prefix: bytes, suffix: bytes, path: str, headers: Mapping[str, str], old: bool) -> None:
        """``headers``: those that count, beside the range; ``old``: HTTP/1.0."""
        self.prefix, self.suffix, self.path, self.headers, self.old = prefix, suffix, path, headers, old
        self.skip, self.cut = len(prefix), -len(suffix)

    def digits(self, data: bytes) -> tuple[bytes, bytes] | None:
        """What is before and behind the dash of the range, 1 to 19 digits each; None: these bytes are no such head."""
        if not (data.startswith(self.prefix) and data.endswith(self.suffix)):
            return None
        found = _RANGE.match(data, self.skip, len(data) + self.cut)
        return (found[1], found[2]) if found else None


def learn(data: bytes, path: str, headers: Mapping[str, str], old: bool) -> Template | None:
    """From bytes that the parser made one GET of, without a body, and what it found in them; None: not of this kind."""
    begin = data.find(_MARK) + _SKIP
    stop = data.find(b"\r", begin)
    wanted = data[begin:stop]
    if (
        len(data) > _MOST_BYTES
        or data.count(_MARK) != 1
        or data[begin - _SKIP - 3 : begin - _SKIP] not in _LINE
        or data.find(_END) != len(data) - len(_END)
        or not _LEARNT.fullmatch(wanted)
        or headers.get("range") != "bytes=" + wanted.decode("ascii")
    ):
        return None
    others = {name: value for name, value in headers.items() if name != "range"}
    return Template(data[:begin], data[stop:], path, others, old)
