# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listens, keeps the limits on connections, and ends those that do not move."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import Counter, deque
from dataclasses import dataclass

from .answers import Answers
from .connection import READ, Connection, Poller, TlsConnection
from .monitoring import AccessLog, Metrics, Progress

_MOST_REFUSED = 64
_SWEEP = 1.0  # seconds between looks for connections that do not move


@dataclass(frozen=True)
class Limits:
    """How many connections at once, in all and from one address (0: as many as in all)."""

    connections: int = 1024
    per_address: int = 64


class Listener:
    """One listening socket and its connections; lives in one event loop."""

    def __init__(
        self, answers: Answers, metrics: Metrics, progress: Progress, limits: Limits = Limits(),
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """With ``tls``, bytes go through this process; without, base ranges do not."""
        self._answers, self._metrics, self._progress, self._limits, self._tls = answers, metrics, progress, limits, tls
        answers.access_log = AccessLog(metrics, progress)
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._refused: deque[socket.socket] = deque()
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._poller: Poller

    def start(self, host: str, port: int) -> int:
        """Listen (``host`` empty: on every address, IPv6 too where there is any); returns the port."""
        loop = asyncio.get_running_loop()
        self._socket = _listen(host, port)
        self._poller = Poller(loop)
        self._poller.add(self._socket.fileno(), READ, self._accept)
        self._sweeper = loop.create_task(self._sweep())
        return int(self._socket.getsockname()[1])

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Connections from now on use this context: a certificate was renewed."""
        if self._tls is None:
            raise RuntimeError("this listener was started without TLS")
        self._tls = context

    async def drain(self, seconds: float) -> None:
        """Take no more connections; idle ones end now, the others with their answer, if it is over in time."""
        self._close_socket()
        over = time.monotonic() + seconds
        while self._connections and time.monotonic() < over:
            for connection in [one for one in self._connections if not one.busy]:
                connection.close()
            if self._connections:
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        self._close_socket()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        for connection in list(self._connections):
            connection.close()
        for client in self._refused:
            client.close()
        if self._socket is not None:
            self._poller.close()

    def _close_socket(self) -> None:
        if self._socket is not None and self._socket.fileno() >= 0:
            self._poller.remove(self._socket.fileno())
            self._socket.close()

    def _accept(self, _events: int) -> None:
        if self._socket is None:
            raise RuntimeError("nothing is under way")
        for _turn in range(64):
            try:
                client, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # out of descriptors, or gone already
                return
            self._take(client, str(peer[0]))

    def _take(self, client: socket.socket, address: str) -> None:
        full = len(self._connections) >= self._limits.connections
        most = self._limits.per_address or self._limits.connections
        if full or self._by_address[address] >= most:
            self._metrics.connections_refused += 1
            answer = self._answers.refusal(503, "too many connections", b"Retry-After: 5\r\n", close=True)
            client.setblocking(False)
            with contextlib.suppress(OSError):
                if self._tls is None:
                    client.send(answer.head + b"too many connections\n")
                    client.shutdown(socket.SHUT_WR)
            # Closed at once, with its request unread, it would be reset before the answer is read.
            self._refused.append(client)
            if len(self._refused) > _MOST_REFUSED:
                self._refused.popleft().close()
            return
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection: Connection
        if self._tls is None:
            connection = Connection(self._poller, client, address, self._answers, self._over)
        else:
            try:
                secured = self._tls.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
            except OSError:  # gone already
                client.close()
                return
            connection = TlsConnection(self._poller, secured, address, self._answers, self._over)
        self._connections.add(connection)
        self._by_address[address] += 1
        self._metrics.connections += 1

    def _over(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._metrics.connections -= 1
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            now = time.monotonic()
            for client in list(self._refused):
                if not _unread(client):
                    self._refused.remove(client)
                    client.close()
            for connection in [one for one in self._connections if one.deadline < now]:
                connection.close()


def _unread(client: socket.socket) -> bool:
    """Throw away what a client that was turned away still sends; False when it is gone or silent."""
    try:
        return bool(client.recv(64 * 1024))
    except OSError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    if not host:
        try:
            return _prepared(
                socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
            )
        except (OSError, ValueError):
            host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return _prepared(socket.create_server((host, port), family=family, backlog=512))


def _prepared(listener: socket.socket) -> socket.socket:
    listener.setblocking(False)
    return listener
