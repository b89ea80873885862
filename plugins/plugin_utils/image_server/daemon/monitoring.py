# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""For those who look after the server: what was sent, on a second socket with probes, and systemd's notifications."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import metric_labels

from .requests import RequestReader

if TYPE_CHECKING:
    from .answers import Answer, Image

LOG = logging.getLogger("kubenode.images")
_PARTS = 1024  # an image is watched in so many parts
_MOST_READERS = 2048
_EVERY = 10.0  # seconds between two lines of one reader
_MIB = 1024 * 1024


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.bytes_sent = 0
        self.cut = 0  # answers that did not reach their end
        self.connections = 0
        self.connections_refused = 0

    def answered(self, status: int, length: int, whole: bool) -> None:
        """An answer is over."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.bytes_sent += length
        self.cut += not whole

    def text(self, images: int, fetched: Mapping[str, int], failed: int = 0) -> str:
        """Everything, with what the registry and the progress of readers say."""
        counter, gauge = "counter", "gauge"
        by_status = (({"code": str(status)}, count) for status, count in sorted(self.requests.items()))
        by_host = (({"host": host}, count) for host, count in sorted(fetched.items()))
        families: Iterable[tuple[str, str, str, Iterable[tuple[Mapping[str, str], int]]]] = (
            ("requests_total", counter, "Requests answered, by status.", by_status),
            ("sent_bytes_total", counter, "Bytes of bodies sent.", (({}, self.bytes_sent),)),
            ("answers_cut_total", counter, "Answers that ended before their last byte.", (({}, self.cut),)),
            ("connections", gauge, "Connections open now.", (({}, self.connections),)),
            ("connections_refused_total", counter, "Connections over the limits.", (({}, self.connections_refused),)),
            ("images", gauge, "Images that are served.", (({}, images),)),
            ("hosts_failed", gauge, "Hosts and descriptors that are not served.", (({}, failed),)),
            ("host_sent_bytes_total", counter, "Bytes of images sent, by host.", by_host),
        )
        lines = []
        for name, kind, text, samples in families:
            full = "kubenode_image_server_" + name
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
            lines += [f"{full}{metric_labels(labels)} {value:d}" for labels, value in samples]
        return "\n".join(lines) + "\n"


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


class AccessLog:
    """Counts answers that are over in the metrics and in the progress of clients."""

    def __init__(self, metrics: Metrics, progress: Progress) -> None:
        """Both are shared with those who show them."""
        self._metrics, self._progress = metrics, progress

    def sent(self, answer: Answer, address: str, length: int, whole: bool) -> None:
        """``length`` bytes of the body went to this address, ``whole``: that was all of them."""
        self._metrics.answered(answer.status, length, whole)
        if answer.image is not None and answer.spans:
            self._progress.sent(answer.image, address, answer.spans, length, time.monotonic())

    def ranged(self, image: Image, address: str, start: int, stop: int, now: float) -> None:
        """These bytes of an image went to this address whole, as the only ones of an answer."""
        self._metrics.answered(206, stop - start, True)
        self._progress.ranged(image, address, start, stop, now)


# --- systemd's notifications, and the second socket


_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_MOST = 64  # connections
_LONGEST = 30.0  # seconds of one
if TYPE_CHECKING:  # Python 3.8 has no such forms
    Page = Callable[[], tuple[int, str, str]]


def notify(environ: Mapping[str, str], text: str) -> None:
    """Send a state to systemd; nothing where it did not start the program."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        client.connect(address)
        client.sendall(text.encode("utf-8"))


def watchdog(environ: Mapping[str, str], pid: int) -> float:
    """Seconds between two signs of life; 0: none are wanted."""
    wanted = environ.get("WATCHDOG_USEC", "")
    if not re.fullmatch(r"[0-9]{1,18}", wanted) or environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return 0.0
    return int(wanted) / 1e6 / 3


def pages(
    metrics: Callable[[], str], alive: Callable[[], str], ready: Callable[[], str], status: Callable[[], Any]
) -> Mapping[str, Page]:
    """What there is to see; ``alive`` and ``ready`` give "" or why not."""

    def probe(state: Callable[[], str]) -> Page:
        def page() -> tuple[int, str, str]:
            reason = state()
            return (503, _TEXT, reason + "\n") if reason else (200, _TEXT, "ok\n")

        return page

    return {
        "/metrics": lambda: (200, _METRICS, metrics()),
        "/healthz": probe(alive),
        "/readyz": probe(ready),
        "/status": lambda: (200, "application/json", json.dumps(status(), indent=2, sort_keys=True) + "\n"),
    }


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, found: Mapping[str, Page], open_now: set[_Connection]) -> None:
        self._pages, self._open = found, open_now
        self._reader = RequestReader()
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._open.add(self)
        self._limit = asyncio.get_running_loop().call_later(_LONGEST, self._transport.abort)
        if len(self._open) > _MOST:
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._limit.cancel()
        self._open.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        for request in self._reader.feed(data):
            self._answer(request.problem, request.method, request.path)
            return

    def _answer(self, problem: int, method: str, path: str) -> None:
        page = self._pages.get(path)
        if problem or method not in ("GET", "HEAD"):
            status, kind, text = 400 if problem else 405, _TEXT, "this request is refused\n"
        elif page is None:
            status, kind, text = 404, _TEXT, f"there are {' '.join(self._pages)}\n"
        else:
            status, kind, text = page()
        body = text.encode("utf-8", "backslashreplace")
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        self._transport.write(f"{head}Connection: close\r\n\r\n".encode("ascii"))
        if method != "HEAD":
            self._transport.write(body)
        self._transport.close()


async def serve_pages(host: str, port: int, found: Mapping[str, Page]) -> asyncio.Server:
    """Listen; ``host`` empty: on every address."""
    open_now: set[_Connection] = set()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(found, open_now), host or None, port)
