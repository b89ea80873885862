# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of a connection become requests; httptools parses, this keeps the limits."""

from __future__ import annotations

import io
import re
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
        """Nothing is read yet."""
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
        """A request begins."""
        self._begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
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
        """A request is whole."""
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
