# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One connection of a reader: ranges of the base go from file to socket inside the kernel, nothing is kept in memory.

A reader that is slow holds a socket and a place in its answer, never a buffer or a thread.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable

from ..overlay import BaseRange, Bytes, Segment
from .answers import Answer, Answers
from .poller import READ, WRITE, Poller
from .quick import Plan
from .requests import Request, RequestReader
from .template import Template

_READ = 4 * 1024
_GATHER = 64 * 1024  # up to so many bytes of a head and what follows go out in one call
_CHUNK = 4 * 1024 * 1024
_BURST = 16 * 1024 * 1024  # then the others have their turn
PIPELINED = 16  # requests that wait; then no more are read
_ZEROS = memoryview(bytes(256 * 1024))

IDLE, HEAD, STALL = 75.0, 15.0, 120.0  # seconds without a request, for a request to come in, without progress


class Connection:
    """Reads requests and writes answers, in their order."""

    __slots__ = ("_answer", "_answers", "_at", "_ending", "_index", "_keep", "_last", "_over", "_paused", "_plan",
                 "_poller", "_queue", "_reader", "_rest", "_sent", "_socket", "_waiting", "address",
                 "deadline")  # fmt: skip

    def __init__(
        self, poller: Poller, client: socket.socket, address: str, answers: Answers, over: Callable[[Connection], None]
    ) -> None:
        """``over`` is called once, when the connection has ended."""
        self._poller, self._socket, self.address, self._answers, self._over = poller, client, address, answers, over
        self._reader = RequestReader()
        self._queue: deque[Request] = deque()
        self._plan: Plan | None = None
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
        """End it now, whatever is under way."""
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
            data = self._socket.recv(_READ)
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
            if self._reader.template is not None and self._quick(self._reader.template, data, now):
                return
            self.deadline = now + HEAD
        self._queue.extend(self._reader.feed(data))
        if self._answer is None and self._queue:
            self._pump()
        elif len(self._queue) > PIPELINED and not self._paused:
            self._paused = True
            self._watch()

    def _quick(self, template: Template, data: bytes, now: float) -> bool:
        """Answer on the short way, where there is one."""
        plan = self._plan
        if plan is None or plan.template is not template or now >= plan.until:
            plan = self._plan = Plan(self._answers, template, self.address, now)
        try:
            found = plan.answer(data, now)
            if found is None:
                return False
            content, start, stop = found
            try:
                sent = self._socket.send(content)
            except (BlockingIOError, InterruptedError):
                sent = 0
        except OSError:
            self.close()
            return True
        if sent == len(content):
            plan.count(start, stop, now)
            self.deadline = now + IDLE
        else:
            self._answer = Answer(206, b"", (), plan.image, ((start, stop),))
            self._index = self._at = 0
            self._sent = sent - (len(content) - (stop - start))
            self._rest = memoryview(content)[sent:]
            self._pump()
        return True

    def _eof(self) -> None:
        """The reader sends no more; what it asked for before it still gets."""
        if self._answer is None or self._ending:
            self.close()
        else:
            self._last = self._paused = True
            self._watch()

    def _pump(self) -> None:
        """Send as much as the socket takes."""
        burst = 0
        try:
            while burst < _BURST:
                if self._answer is None and not self._next():
                    return
                sent = self._send()
                self._sent += sent
                burst += sent
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

    def _send(self) -> int:
        """One call to the kernel; the number of bytes it took."""
        answer = self._answer
        if answer is None:
            raise RuntimeError("nothing is under way")
        if self._rest is not None:
            more = socket.MSG_MORE if self._index < len(answer.segments) else 0
            sent = self._socket.send(self._rest, more)
            self._rest = memoryview(self._rest)[sent:] if sent < len(self._rest) else None
        else:
            segment = answer.segments[self._index]
            if isinstance(segment, BaseRange):
                sent = self._from_base(answer, segment)
            elif isinstance(segment, Bytes):
                sent = self._socket.send(memoryview(segment.data)[self._at :])
            else:
                sent = self._socket.send(_ZEROS[: min(len(_ZEROS), segment.length - self._at)])
            self._at += sent
            if self._at == segment.length:
                self._index, self._at = self._index + 1, 0
        return sent

    def _from_base(self, answer: Answer, segment: BaseRange) -> int:
        if answer.image is None:
            raise RuntimeError("nothing is under way")
        if not answer.image.file.intact(time.monotonic()):
            raise OSError("the base was changed")  # the reader sees a cut, never mixed bytes
        count = min(_CHUNK, segment.length - self._at)
        sent = os.sendfile(self._socket.fileno(), answer.image.file.fd, segment.offset + self._at, count)
        if not sent:
            raise OSError("the base became shorter")
        return sent

    def _finish(self, whole: bool) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            self._answers.ledger.sent(answer, self.address, max(0, self._sent), whole)

    def _end(self) -> None:
        """Everything is sent: tell the reader, and let it close so that the last bytes are not lost."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
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
