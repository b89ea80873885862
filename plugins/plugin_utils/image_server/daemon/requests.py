# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of a connection become requests (httptools parses, this keeps the limits), and their fields ranges."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

try:
    import httptools

    HAS_HTTPTOOLS = True
except ImportError:
    HAS_HTTPTOOLS = False

_MOST_HEAD = 16 * 1024  # bytes of a request as they come in: all that is no body, ends of lines and blanks too
_MOST_PATH = 2048
_MOST_BODY = 64 * 1024  # no request needs one; as much is read and dropped
_KEPT = frozenset((b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"))
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")


@dataclass
class Request:
    """One request; ``problem``: the status it is refused with, after which the connection ends."""

    __slots__ = ("headers", "keep_alive", "method", "old", "path", "problem")
    method: str
    path: str
    headers: Mapping[str, str]
    keep_alive: bool
    old: bool  # HTTP/1.0, whose clients expect a header when the connection stays
    problem: int


class RequestReader:
    """Collects the requests of one connection."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._ready: list[Request] = []
        self._ended = False
        self._raw = 0  # bytes since the last request was complete, without its body
        self._whole = 0  # requests that were complete
        self._body_bytes = 0
        self._begin()

    def feed(self, data: bytes) -> list[Request]:
        """The requests that these bytes complete, in their order."""
        if self._ended:
            return []
        if not self._raw and len(data) <= _MOST_HEAD and _one_head(data):
            self._parse(data)
        else:
            for line in io.BytesIO(data):
                if not self._ended:
                    self._parse(line)
        ready, self._ready = self._ready, []
        return ready

    @property
    def idle(self) -> bool:
        """Whether no request has begun."""
        return not self._raw

    def _parse(self, piece: bytes) -> None:
        """Have a piece parsed that completes one request at most, and that at its end or with the end of a body."""
        whole, body = self._whole, self._body_bytes
        try:
            self._parser.feed_data(piece)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            if not self._ended:
                self._refuse(400)
        body = self._body_bytes - body
        complete = self._whole != whole
        if complete and body:
            self._raw = len(piece) - body  # the next one begins behind the body
            return
        self._raw += len(piece) - body
        if self._raw > _MOST_HEAD and not self._ended:
            if complete:
                self._ready.pop()
            self._refuse(431)
        elif complete:
            self._raw = 0

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._hosts = 0
        self._trailing = False
        self._body = 0

    def _refuse(self, status: int) -> None:
        self._ended = True
        self._ready.append(Request("", "", {}, False, False, status))

    # what httptools calls

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > _MOST_PATH:
            self._stop(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field; several of one name become a list, as the standard says."""
        if self._trailing:
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
            if self._hosts > 1 or not _HOST.fullmatch(value):
                self._stop(400)
        elif name in _KEPT:
            key, text = name.decode("ascii"), value.decode("latin-1")
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """What follows is a body and its trailer."""
        self._trailing = True
        if not self._hosts and self._parser.get_http_version() not in ("1.0", "0.9"):
            self._stop(400)

    def on_body(self, body: bytes) -> None:
        """A body, which is dropped."""
        self._body += len(body)
        self._body_bytes += len(body)
        if self._body > _MOST_BODY:
            self._stop(400)

    def on_message_complete(self) -> None:
        if self._ended:
            return
        self._whole += 1
        version = self._parser.get_http_version()
        path = self._url.partition(b"?")[0].partition(b"#")[0]
        text = path.decode("latin-1")
        if not text.startswith("/") and "://" in text:  # the absolute form that proxies send
            text = "/" + text.partition("://")[2].partition("/")[2]
        method = self._parser.get_method().decode("ascii", "replace")
        self._ready.append(
            Request(method, text, self._headers, self._parser.should_keep_alive(), version == "1.0", 0)
        )  # fmt: skip
        self._begin()

    def _stop(self, status: int) -> None:
        if not self._ended:
            self._refuse(status)
        raise ValueError("refused")  # ends httptools' reading; what came before stays ready


def _one_head(data: bytes) -> bool:
    """Whether this is one head, as nearly every request is: an empty line ends it, and there is none before."""
    return data.find(b"\r\n\r\n") == len(data) - 4 and data.count(b"\n") == data.count(b"\r\n")


# --- range and conditional headers (RFC 9110), as far as a server of images needs them (pure)


MOST = 32  # ranges in one request; for more, the whole image is sent
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# as many digits as Python makes a number of under every setting (sys.set_int_max_str_digits)
_ONE = re.compile(r"(\d{1,600})?-(\d{1,600})?\Z", re.ASCII)
_PLAIN = re.compile(r"bytes=(\d{1,600})-(\d{1,600})\Z", re.ASCII)
_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def ranges_of(header: str, size: int) -> list[tuple[int, int]] | None:
    """The wanted ranges as (start, stop), stop not included; ``[]``: none of them is in the image (416).

    None: a header to be ignored, as the standard asks for units, forms and numbers of ranges a server does not take.
    """
    plain = _PLAIN.match(header)
    if plain:
        start, stop = int(plain[1]), int(plain[2]) + 1
        if stop <= start:
            return None
        return [(start, min(stop, size))] if start < size else []
    unit, equals, rest = header.partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return None
    found = []
    parts = [part.strip(" \t") for part in rest.split(",")]
    parts = [part for part in parts if part]
    if not parts or len(parts) > MOST:
        return None
    for part in parts:
        match = _ONE.match(part)
        if not match or match.group() == "-":
            return None
        first, last = match.groups()
        if first is None:
            start, stop = max(0, size - int(last)), size
        else:
            start = int(first)
            stop = size if last is None else min(size, int(last) + 1)
            if last is not None and int(last) < start:
                return None
        if start < stop:
            found.append((start, stop))
    if len(found) > 1 and sum(stop - start for start, stop in found) > size:
        return None  # overlapping ranges that add up to more than the image: only an attacker asks so
    return found


def if_range(header: str, etag: str) -> bool:
    """Whether ranges may be sent. Only a strong tag can say so: a date has whole seconds only."""
    match = _TAG.match(header.strip())
    return match is not None and not match.group(1) and match.group(2) == etag


def not_modified(headers: Mapping[str, str], etag: str, modified: int) -> bool:
    """Whether the client has this image already (304)."""
    tags = headers.get("if-none-match")
    if tags is not None:
        return tags.strip() == "*" or any(tag == etag for _weak, tag in _TAG.findall(tags))
    since = headers.get("if-modified-since")
    moment = None if since is None else from_http_date(since)
    return moment is not None and modified <= moment


def precondition_failed(headers: Mapping[str, str], etag: str, modified: int) -> bool:
    """Whether the client asked for another state of the image (412). Where it names tags, its date does not count."""
    tags = headers.get("if-match")
    if tags is not None:
        return tags.strip() != "*" and all(weak or tag != etag for weak, tag in _TAG.findall(tags))
    since = headers.get("if-unmodified-since")
    moment = None if since is None else from_http_date(since)
    return moment is not None and modified > moment


def http_date(seconds: float) -> str:
    """A moment as HTTP writes it."""
    at = time.gmtime(seconds)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04d}"
    return f"{day} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT"


def from_http_date(text: str) -> float | None:
    """The moment of an HTTP date; None when it is none."""
    import email.utils  # takes longer to load than most of the server, and few clients send dates
    from datetime import timezone

    if text.count(":") != 2:  # a list of dates is none
        return None
    try:
        found = email.utils.parsedate_to_datetime(text)
        # the form without a zone is of the same zone as the others
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
