# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For those who look after the server: systemd's notifications, and a second socket with metrics and probes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .server.requests import RequestReader

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
        head = "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self._transport.write((head % (status, _REASONS[status], kind, len(body))).encode("ascii"))
        if method != "HEAD":
            self._transport.write(body)
        self._transport.close()


async def serve_pages(host: str, port: int, found: Mapping[str, Page]) -> asyncio.Server:
    """Listen; ``host`` empty: on every address."""
    open_now: set[_Connection] = set()
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(found, open_now), host or None, port)
