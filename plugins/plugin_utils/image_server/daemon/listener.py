# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One connection of a client, plain or TLS.

Plain: ranges of the base go from file to socket inside the kernel, nothing is kept in memory. A slow client holds a
socket and a place in its answer, never a buffer or a thread.

TLS: bytes pass through this process, a few records at a time. A write that the socket did not take whole has to be
made again with the same bytes; they are read from the base again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import BaseRange, Bytes, Segment

from .answers import Answer, Answers, fast_answer
from .monitoring import AccessLog, Metrics, Progress
from .requests import Request, RequestReader

_READ = 4 * 1024
_GATHER = 64 * 1024  # up to so many bytes of a head and what follows go out in one call
_CHUNK = 4 * 1024 * 1024
_BURST = 16 * 1024 * 1024  # then the others have their turn
PIPELINED = 16  # requests that wait; then no more are read
_ZEROS = memoryview(bytes(256 * 1024))

IDLE, HEAD, STALL = 75.0, 15.0, 120.0  # seconds without a request, for a request to come in, without progress
_RECORD = 16 * 1024  # the most that a record holds: what was decrypted is read whole, for no poller sees what is left


class Connection:
    """Reads requests and writes answers, in their order."""

    _PIECE = _CHUNK  # bytes of a segment that one call is given

    __slots__ = ("_answer", "_answers", "_at", "_ending", "_index", "_keep", "_last", "_over", "_paused", "_poller",
                 "_queue", "_reader", "_rest", "_sent", "_socket", "_waiting", "address", "deadline")  # fmt: skip

    def __init__(
        self, poller: Poller, client: socket.socket, address: str, answers: Answers, over: Callable[[Connection], None]
    ) -> None:
        """``over`` is called once, when the connection has ended."""
        self._poller, self._socket, self.address, self._answers, self._over = poller, client, address, answers, over
        self._reader = RequestReader()
        self._queue: deque[Request] = deque()
        self._answer: Answer | None = None
        self._rest: memoryview | bytes | None = None  # of what was read or made and is not sent yet
        self._index = self._at = self._sent = 0
        self._keep = True
        self._waiting = self._paused = self._last = self._ending = False
        self.deadline = time.monotonic() + HEAD
        poller.add(client.fileno(), READ, self._ready)

    @property
    def busy(self) -> bool:
        """Whether an answer is under way or asked for."""
        return self._answer is not None or self._ending or bool(self._queue)

    def close(self) -> None:
        """End it now, also in the middle of an answer."""
        if self._socket.fileno() < 0:
            return
        self._finish(whole=False)
        self._poller.remove(self._socket.fileno())
        self._socket.close()
        self._over(self)

    def _ready(self, events: int) -> None:
        if self._waiting and events & ~READ:
            self._pump()
        elif not self._paused:
            self._readable()
        else:
            self.close()  # an error: nothing is watched that could be ready

    def _watch(self) -> None:
        self._poller.change(self._socket.fileno(), (not self._paused and READ) | (self._waiting and WRITE))

    def _readable(self) -> None:
        try:
            data = self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._eof()
            return
        if self._ending:
            return
        if self._answer is None and self._reader.idle:
            now = time.monotonic()
            if self._keep and self._fast(data, now):
                return
            self.deadline = now + HEAD
        self._queue.extend(self._reader.feed(data))
        if self._answer is None and self._queue:
            self._pump()
        elif len(self._queue) > PIPELINED and not self._paused:
            self._paused = True
            self._watch()

    def _fast(self, data: bytes, now: float) -> bool:
        """Answer on the fast path; False when this request has to take the full one."""
        try:
            found = fast_answer(self._answers, data, now)
            if found is None:
                return False
            content, image, start, stop = found
            try:
                sent = self._put(content)
            except (BlockingIOError, InterruptedError):
                sent = 0
        except OSError:
            self.close()
            return True
        if sent == len(content):
            self._answers.access_log.ranged(image, self.address, start, stop, now)
            self.deadline = now + IDLE
        else:
            self._answer = Answer(206, b"", (), image, ((start, stop),))
            self._index = self._at = 0
            self._sent = sent - (len(content) - (stop - start))
            self._rest = memoryview(content)[sent:]
            self._pump()
        return True

    def _eof(self) -> None:
        """The client sends no more; it still gets what it asked for before."""
        if self._answer is None or self._ending:
            self.close()
        else:
            self._last = self._paused = True
            self._watch()

    def _pump(self) -> None:
        """Send as much as the socket takes."""
        burst, room = 0, True
        try:
            while room and burst < _BURST:
                if self._answer is None and not self._next():
                    return
                sent, wanted = self._send()
                self._sent += sent
                burst += sent
                room = sent == wanted  # to ask a full socket once more costs more than many a request
                if self._rest is None and self._answer is not None and self._index == len(self._answer.segments):
                    self._finish(whole=True)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        if burst or not self._waiting:
            self.deadline = time.monotonic() + STALL
        if not self._waiting:
            self._waiting = True
            self._watch()

    def _next(self) -> bool:
        """Begin the next answer; False when there is nothing to do, or the connection has ended."""
        if not self._keep or (self._last and not self._queue):
            self._end()
            return False
        if not self._queue:
            if self._waiting or self._paused:
                self._waiting = self._paused = False
                self._watch()
            self.deadline = time.monotonic() + (IDLE if self._reader.idle else HEAD)
            return False
        request = self._queue.popleft()
        if request.problem:
            answer = self._answers.refusal(request.problem, "this request is refused", close=True)
        else:
            answer = self._answers.answer(request.method, request.path, request.headers)
        head = answer.head
        self._keep = request.keep_alive
        if not request.keep_alive and not request.problem:
            head = head[:-2] + b"Connection: close\r\n\r\n"
        elif request.old:
            head = head[:-2] + b"Connection: keep-alive\r\n\r\n"
        self._answer, self._index, self._at, self._sent = answer, 0, 0, -len(head)
        self._rest = self._gathered(head, answer)
        return True

    def _gathered(self, head: bytes, answer: Answer) -> bytes:
        """The head with as many of the first segments as are small."""
        parts, length = [head], len(head)
        for segment in answer.segments:
            length += segment.length
            if length > _GATHER:
                break
            parts.append(_content(segment, answer))
            self._index += 1
        return b"".join(parts) if len(parts) > 1 else head

    def _send(self) -> tuple[int, int]:
        """One call to the kernel: the number of bytes it took, and that it was given."""
        answer = self._answer
        if answer is None:
            raise RuntimeError("nothing is under way")
        if self._rest is not None:
            wanted = len(self._rest)
            sent = self._put(self._rest, self._index < len(answer.segments))
            self._rest = memoryview(self._rest)[sent:] if sent < wanted else None
            return sent, wanted
        segment = answer.segments[self._index]
        wanted = min(self._PIECE, segment.length - self._at)
        if isinstance(segment, BaseRange):
            sent = self._from_base(answer, segment.offset + self._at, wanted)
        elif isinstance(segment, Bytes):
            sent = self._put(memoryview(segment.data)[self._at : self._at + wanted])
        else:
            wanted = min(wanted, len(_ZEROS))
            sent = self._put(_ZEROS[:wanted])
        self._at += sent
        if self._at == segment.length:
            self._index, self._at = self._index + 1, 0
        return sent, wanted

    def _from_base(self, answer: Answer, offset: int, count: int) -> int:
        if answer.image is None:
            raise RuntimeError("nothing is under way")
        if not answer.image.file.intact(time.monotonic()):
            raise OSError("the base was changed")  # the client sees a cut, never mixed bytes
        sent = self._copy(answer.image.file.fd, offset, count)
        if not sent:
            raise OSError("the base became shorter")
        return sent

    # what is different over TLS; each raises BlockingIOError when it would have to wait

    def _receive(self) -> bytes:
        return self._socket.recv(_READ)

    def _put(self, data: bytes | memoryview, more: bool = False) -> int:
        return self._socket.send(data, socket.MSG_MORE if more else 0)

    def _copy(self, fd: int, offset: int, count: int) -> int:
        return os.sendfile(self._socket.fileno(), fd, offset, count)

    def _shut_down(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def _finish(self, whole: bool) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            self._answers.access_log.sent(answer, self.address, max(0, self._sent), whole)

    def _end(self) -> None:
        """Everything is sent: shut down, and let the client close, so that the last bytes are not lost."""
        self._shut_down()
        self._ending = True
        self._queue.clear()
        if self._last:
            self.close()
            return
        self.deadline = time.monotonic() + 2
        if self._waiting or self._paused:
            self._waiting = self._paused = False
            self._watch()


def _content(segment: Segment, answer: Answer) -> bytes:
    if isinstance(segment, BaseRange):
        if answer.image is None:
            raise RuntimeError("nothing is under way")
        data = os.pread(answer.image.file.fd, segment.length, segment.offset)
        if len(data) != segment.length:
            raise OSError("the base became shorter")
        return data
    return segment.data if isinstance(segment, Bytes) else bytes(segment.length)


class TlsConnection(Connection):
    """Reads requests and writes answers once the handshake is done."""

    _PIECE = 64 * 1024

    __slots__ = ("_shaken", "_tls")

    def __init__(
        self, poller: Poller, client: ssl.SSLSocket, address: str, answers: Answers, over: Callable[[Connection], None]
    ) -> None:
        """``client`` has not shaken hands yet."""
        super().__init__(poller, client, address, answers, over)
        self._tls, self._shaken = client, False

    @property
    def busy(self) -> bool:
        """Whether an answer is under way or asked for, or the handshake."""
        return not self._shaken or super().busy

    def _ready(self, events: int) -> None:
        if self._shaken:
            super()._ready(events)
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._poller.change(self._tls.fileno(), READ)
        except ssl.SSLWantWriteError:
            self._poller.change(self._tls.fileno(), WRITE)
        except OSError:
            self.close()
        else:
            self._shaken = True
            self._watch()

    def _receive(self) -> bytes:
        try:
            return self._tls.recv(_RECORD)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None

    def _put(self, data: bytes | memoryview, more: bool = False) -> int:
        try:
            return self._tls.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def _copy(self, fd: int, offset: int, count: int) -> int:
        data = os.pread(fd, count, offset)
        if len(data) != count:
            raise OSError("the base became shorter")
        return self._put(data)

    def _shut_down(self) -> None:
        try:
            self._tls.unwrap()  # says that nothing was cut off
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLError:  # the client has not said the same yet; that is not waited for
            pass
        self._tls.shutdown(socket.SHUT_WR)


# --- sockets that are ready, many at a time: a busy client does not pay for a whole turn of the event loop per request.
#
# An epoll set of its own inside an asyncio loop. The loop sees one descriptor; what is ready in it is handled here,
# and as long as clients keep asking, without going back to the loop, whose other tasks get their turn every few
# milliseconds.


READ, WRITE = 1, 4  # EPOLLIN, EPOLLOUT; errors and hang-ups come unasked
_TURN = 0.004  # seconds until the loop gets its turn
_LINGER = 0.001  # seconds to wait here for the next request before the loop does the waiting


class Poller:
    """Calls back for sockets that can be read or written; lives in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._turn)

    def add(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Watch a descriptor; ``callback`` is called with the events that came."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._callbacks.clear()

    def _turn(self) -> None:
        poll, callbacks, clock = self._epoll.poll, self._callbacks, time.monotonic
        ready = poll(0)
        over = clock() + _TURN
        while ready:
            for fd, events in ready:
                callback = callbacks.get(fd)
                if callback is not None:  # else removed by one before it
                    callback(events)
            if clock() >= over or self._epoll.closed:
                return
            ready = poll(_LINGER)


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
        secured: ssl.SSLSocket | None = None
        try:
            if self._tls is None:
                connection = Connection(self._poller, client, address, self._answers, self._over)
            else:
                secured = self._tls.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
                connection = TlsConnection(self._poller, secured, address, self._answers, self._over)
        except BaseException as error:  # a connection that is not watched has no end
            (secured or client).close()
            if isinstance(error, OSError):  # gone already
                return
            raise
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
