# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""From a request to the head and the segments of its answer (pure but for asking whether a base is intact)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable

from ..overlay import Bytes, Segment
from . import ranges
from .registry import Image, Registry

_REASONS = {
    200: "OK", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 412: "Precondition Failed", 414: "URI Too Long", 416: "Range Not Satisfiable",
    431: "Request Header Fields Too Large", 503: "Service Unavailable",
}  # fmt: skip
_TEXT = "text/plain; charset=utf-8"


@dataclass
class Answer:
    """What goes back: a head, then segments of the image's base or bytes of their own."""

    __slots__ = ("head", "image", "segments", "spans", "status")
    status: int
    head: bytes
    segments: Sequence[Segment]
    image: Image | None
    spans: Sequence[tuple[int, int]]  # of the image that are in this answer

    @property
    def length(self) -> int:
        """Bytes of the body."""
        return sum(segment.length for segment in self.segments)


class Ledger:
    """Is told when answers are over; this one does not care."""

    def sent(self, answer: Answer, address: str, length: int, whole: bool) -> None:
        """``length`` bytes of the body went to this address, ``whole``: that was all of them."""

    def ranged(self, image: Image, address: str, start: int, stop: int, now: float) -> None:
        """These bytes of an image went to this address whole, as the only ones of an answer."""


class Answers:
    """Answers requests from a registry."""

    def __init__(
        self, registry: Registry, path_of: Callable[[str], str | None] | None = None, ledger: Ledger | None = None
    ) -> None:
        """``path_of``: from the path of a request to the one that is registered; None: refused (403)."""
        self.registry = registry
        self._path_of = path_of
        self.ledger = ledger or Ledger()
        self._second = 0
        self._starts: dict[int, bytes] = {}  # status → what a head begins with in this second

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """The answer to one request; header names in lower case, ``path`` without its query."""
        if method not in ("GET", "HEAD"):
            return self.refusal(405, "only GET and HEAD are possible", b"Allow: GET, HEAD\r\n")
        plain = self.registered(path)
        if plain is None:
            return self.refusal(403, "this address has expired or was never valid", head_only=method == "HEAD")
        image = self.registry.get(plain)
        if image is None:
            return self.refusal(404, "there is no such image", head_only=method == "HEAD")
        if not image.file.intact(time.monotonic()):
            text = "the base of this image is being replaced"
            return self.refusal(503, text, b"Retry-After: 5\r\n", head_only=method == "HEAD")
        return self._image(image, headers, method == "HEAD")

    def registered(self, path: str) -> str | None:
        """The path in the registry that the path of a request stands for; None: it may not have it (now)."""
        return path if self._path_of is None else self._path_of(path)

    def refusal(
        self, status: int, text: str, lines: bytes = b"", *, head_only: bool = False, close: bool = False
    ) -> Answer:
        """A short answer that is no image."""
        body = text.encode("utf-8") + b"\n"
        lines += b"Content-Type: %s\r\n" % _TEXT.encode("ascii")
        if close:
            lines += b"Connection: close\r\n"
        head = self._head(status, lines, len(body))
        return Answer(status, head, [] if head_only else [Bytes(body)], None, ())

    def _image(self, image: Image, headers: Mapping[str, str], head_only: bool) -> Answer:
        size = image.overlay.size
        if headers:
            if ranges.precondition_failed(headers, image.etag, image.modified):
                return self.refusal(412, "the image is another one by now", image.head, head_only=head_only)
            if ranges.not_modified(headers, image.etag, image.modified):
                return Answer(304, self._head(304, image.head, None), (), image, ())
            wanted = headers.get("range")
            if wanted is not None and ("if-range" not in headers or ranges.if_range(headers["if-range"], image.etag)):
                spans = ranges.parse(wanted, size)
                if spans is not None:
                    return self._ranges(image, spans, head_only)
        segments = () if head_only else image.overlay.segments
        return Answer(200, self._head(200, image.head, size), segments, image, () if head_only else ((0, size),))

    def _ranges(self, image: Image, spans: Sequence[tuple[int, int]], head_only: bool) -> Answer:
        size = image.overlay.size
        if not spans:
            lines = image.head + b"Content-Range: bytes */%d\r\n" % size
            return Answer(416, self._head(416, lines, 0), (), image, ())
        if len(spans) == 1:
            start, stop = spans[0]
            head = self.range_head(image, start, stop)
            if head_only:
                return Answer(206, head, (), image, ())
            return Answer(206, head, image.overlay.slice(start, stop), image, spans)
        return self._several(image, spans, head_only)

    def range_head(self, image: Image, start: int, stop: int) -> bytes:
        """The head of an answer that is one range."""
        return b"%b%bContent-Range: bytes %d-%d/%d\r\nContent-Length: %d\r\n\r\n" % (
            self.start(206), image.head, start, stop - 1, image.overlay.size, stop - start,
        )  # fmt: skip

    def _several(self, image: Image, spans: Sequence[tuple[int, int]], head_only: bool) -> Answer:
        """Several ranges: parts with a boundary that is in no image by chance, made of its tag."""
        boundary = b"range-" + image.etag.encode("ascii")
        kind = image.head[image.head.rindex(b"Content-Type: ") :]
        segments: list[Segment] = []
        for start, stop in spans:
            place = b"Content-Range: bytes %d-%d/%d\r\n\r\n" % (start, stop - 1, image.overlay.size)
            segments += [Bytes(b"\r\n--" + boundary + b"\r\n" + kind + place), *image.overlay.slice(start, stop)]
        segments.append(Bytes(b"\r\n--" + boundary + b"--\r\n"))
        length = sum(segment.length for segment in segments)
        lines = image.head.replace(kind, b"Content-Type: multipart/byteranges; boundary=" + boundary + b"\r\n")
        return Answer(
            206, self._head(206, lines, length), () if head_only else segments, image, () if head_only else spans
        )

    def _head(self, status: int, lines: bytes, length: int | None) -> bytes:
        size = b"" if length is None else b"Content-Length: %d\r\n" % length
        return b"%s%s%s\r\n" % (self.start(status), lines, size)

    def start(self, status: int) -> bytes:
        """The first two lines of a head."""
        now = int(time.time())
        if now != self._second:
            self._second, self._starts = now, {}
        start = self._starts.get(status)
        if start is None:
            told = status, _REASONS[status].encode("ascii"), ranges.http_date(now).encode("ascii")
            start = self._starts[status] = b"HTTP/1.1 %d %s\r\nDate: %s\r\n" % told
        return start
