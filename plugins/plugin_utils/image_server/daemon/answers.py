# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a request to the head and the segments of its answer.

Nearly every request takes the fast path: a GET of HTTP/1.1 with one Host and one Range of a few KiB of the base, and
with no field that this server or the framing of HTTP cares about. Every other request takes the full path, which would
give the same answer.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Base
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import (
    BaseRange,
    Bytes,
    Overlay,
    Segment,
)

from . import requests
from .monitoring import AccessLog, Metrics, Progress

_REASONS = {
    200: "OK", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 412: "Precondition Failed", 414: "URI Too Long", 416: "Range Not Satisfiable",
    431: "Request Header Fields Too Large", 503: "Service Unavailable",
}  # fmt: skip
_TEXT = "text/plain; charset=utf-8"
_RETRY = b"Retry-After: 5\r\n"
_FAST_MOST = 64 * 1024  # bytes of a range that goes through memory
_FAST_MOST_HEAD = 2048  # bytes
_FAST_OTHER = (
    rb"(?:(?!(?i:connection(?!:[ \t]*keep-alive\r)|content-length|host|if-|proxy-connection|range|transfer-|upgrade))"
    rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*"
)
_FAST_HOST = rb"(?i:host):[ \t]*[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*\r\n"
_FAST_RANGE = rb"(?i:range):[ \t]*bytes=([0-9]{1,19})-([0-9]{1,19})\r\n"
_FAST_HEAD = re.compile(
    rb"GET (/[!\"$->@-~]*)(?:\?[!-~]*)? HTTP/1\.1\r\n%(other)s"
    rb"(?:%(host)s%(other)s%(range)s|%(range)s%(other)s%(host)s)%(other)s\r\n"
    % {b"other": _FAST_OTHER, b"host": _FAST_HOST, b"range": _FAST_RANGE}
)


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


class Answers:
    """Answers requests from a registry."""

    def __init__(
        self,
        registry: Registry,
        path_of: Callable[[str], str | None] | None = None,
        make: Callable[[str], bool] | None = None,
        later: Callable[[str], str] = lambda path: "",
    ) -> None:
        """``path_of``: from the path of a request to the one that is registered; None: refused (403).

        ``make``: makes the image of a registered path that has none yet; returns whether the image is there now.
        ``later``: why a path has no image although it may have one some day (503); "" when it never will (404).
        """
        self.registry = registry
        self._path_of, self._make, self._later = path_of, make, later
        self.access_log = AccessLog(Metrics(), Progress())
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
        if image is None and self._make is not None and self._make(plain):
            image = self.registry.get(plain)
        if image is None:
            reason = self._later(plain)
            if reason:
                return self.refusal(503, reason, _RETRY, head_only=method == "HEAD")
            return self.refusal(404, "there is no such image", head_only=method == "HEAD")
        if not image.file.intact(time.monotonic()):
            text = "the base of this image is being replaced"
            return self.refusal(503, text, _RETRY, head_only=method == "HEAD")
        return self._image(image, headers, method == "HEAD")

    def registered(self, path: str) -> str | None:
        """The path in the registry for the path of a request; None: the client may not have it (now)."""
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
            if requests.precondition_failed(headers, image.etag, image.modified):
                return self.refusal(412, "the image is another one by now", image.head, head_only=head_only)
            if requests.not_modified(headers, image.etag, image.modified):
                return Answer(304, self._head(304, image.head, None), (), image, ())
            wanted = headers.get("range")
            if wanted is not None and ("if-range" not in headers or requests.if_range(headers["if-range"], image.etag)):
                spans = requests.ranges_of(wanted, size)
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
            values = status, _REASONS[status].encode("ascii"), requests.http_date(now).encode("ascii")
            start = self._starts[status] = b"HTTP/1.1 %d %s\r\nDate: %s\r\n" % values
        return start


def fast_request(data: bytes) -> tuple[str, int, int] | None:
    """The path, the first and the last byte that these bytes ask for; None: they are no such head (pure)."""
    found = _FAST_HEAD.fullmatch(data) if len(data) <= _FAST_MOST_HEAD else None
    if found is None:
        return None
    path, first, last, sooner, later = found.groups()  # the range behind Host, or before it
    return path.decode("ascii"), int(first or sooner), int(last or later)


def fast_answer(answers: Answers, data: bytes, now: float) -> tuple[bytes, Image, int, int] | None:
    """Head and body for these bytes of a request, the image and the range of it that they are.

    ``now``: of the monotonic clock, in seconds. OSError: the base cannot be read.
    """
    wanted = fast_request(data)
    if wanted is None:
        return None
    path, start, last = wanted
    registered, length = answers.registered(path), last + 1 - start
    image = None if registered is None else answers.registry.get(registered)
    if image is None or not 0 < length <= _FAST_MOST or not image.file.intact(now):
        return None
    segment, at = image.overlay.place(start)
    if not isinstance(segment, BaseRange) or at + length > segment.length:
        return None
    body = os.pread(image.file.fd, length, segment.offset + at)
    if len(body) != length:
        raise OSError("the base became shorter")
    return answers.range_head(image, start, last + 1) + body, image, start, last + 1


# --- what is served: public paths and the overlays behind them, changed while readers read


CONTENT_TYPES = {".iso": "application/x-iso9660-image", ".ipxe": "text/plain; charset=utf-8"}
OTHER = "application/octet-stream"


class BaseFile:
    """An open base: the file that was read, even when another one has taken its name since."""

    __slots__ = ("_checked", "_good", "base", "fd")

    def __init__(self, base: Base) -> None:
        """Open it; ImageError for one that was changed since it was read."""
        self.base = base
        self.fd = os.open(base.path, os.O_RDONLY | os.O_CLOEXEC)
        self._checked, self._good = 0.0, True
        if not self.intact(0.0):
            os.close(self.fd)
            raise ImageError(f"base {base.path} was changed since it was read; read it again")

    def intact(self, now: float) -> bool:
        """Whether it was not written to; the kernel is asked at most every 100 ms."""
        if now - self._checked >= 0.1 or not now:
            found = os.fstat(self.fd)
            self._checked = now
            self._good = found.st_mtime_ns == self.base.mtime_ns and found.st_size in (0, self.base.size)
        return self._good

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.fd)


@dataclass(frozen=True)
class Image:
    """One image as readers see it."""

    __slots__ = ("etag", "file", "head", "host", "modified", "overlay")
    host: str  # whose image it is, for logs and metrics
    overlay: Overlay
    file: BaseFile
    etag: str
    modified: int
    head: bytes  # the header lines that are the same in every answer


@dataclass
class Registry:
    """Public path → image. Writers replace, readers keep what they have begun with."""

    _images: dict[str, Image] = field(default_factory=dict)
    _files: dict[Base, BaseFile] = field(default_factory=dict)
    _uses: dict[Base, int] = field(default_factory=dict)  # how many images are over a base
    _lock: threading.Lock = field(default_factory=threading.Lock)
    changes: int = 0  # how often what is served became something else

    def put(self, path: str, host: str, overlay: Overlay, modified: float) -> Image:
        """Publish an image; ``modified`` is when its newest input was written (seconds since 1970).

        The same content keeps its date; other content gets a later one than what it replaces.
        """
        etag = overlay.etag()
        with self._lock:
            old = self._images.get(path)
            if old is not None and old.etag == etag and old.file.intact(time.monotonic()):
                return old
            moment = int(modified)
            if old is not None and old.etag != etag:
                moment = max(moment, old.modified + 1)
            file = self._files.get(overlay.base)
            if file is None or not file.intact(0.0):
                file = self._files[overlay.base] = BaseFile(overlay.base)
            image = Image(host, overlay, file, etag, moment, _head(path, etag, moment))
            self._uses[overlay.base] = self._uses.get(overlay.base, 0) + 1
            self._images[path] = image
            self.changes += 1
            self._unused(old)
            return image

    def remove(self, path: str) -> None:
        """Serve it no longer; readers that have begun go on to the end."""
        with self._lock:
            old = self._images.pop(path, None)
            self.changes += old is not None
            self._unused(old)

    def get(self, path: str) -> Image | None:
        return self._images.get(path)

    def __len__(self) -> int:
        return len(self._images)

    def items(self) -> Iterator[tuple[str, Image]]:
        """Every path and its image, as they are now."""
        return iter(list(self._images.items()))

    def _unused(self, image: Image | None) -> None:
        """An image went away; a base that no other is over is closed when its last reader is done."""
        if image is None:
            return
        base = image.overlay.base
        self._uses[base] -= 1
        if not self._uses[base]:
            del self._uses[base], self._files[base]


def _head(path: str, etag: str, modified: int) -> bytes:
    suffix = os.path.splitext(path)[1]
    lines = (
        ("Accept-Ranges", "bytes"),
        ("ETag", f'"{etag}"'),
        ("Last-Modified", requests.http_date(modified)),
        ("Cache-Control", "private, no-transform"),
        ("X-Content-Type-Options", "nosniff"),
    )
    text = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return text.encode("ascii") + b"Content-Type: " + CONTENT_TYPES.get(suffix, OTHER).encode("ascii") + b"\r\n"
