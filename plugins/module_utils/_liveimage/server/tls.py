# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The same over TLS: bytes have to pass through this process, a quarter of a MiB at a time."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator

from ..overlay import BaseRange, Bytes
from .answers import Answer, Answers
from .connection import HEAD, IDLE, PIPELINED, STALL
from .requests import Request, RequestReader

_CHUNK = 256 * 1024


class TlsConnection(asyncio.Protocol):
    """Reads requests and writes answers, in their order, never more than the socket takes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: socket.socket, address: str, answers: Answers,
        over: Callable[[TlsConnection], None], context: ssl.SSLContext,
    ) -> None:  # fmt: skip
        """Begin with the handshake."""
        self._loop, self._socket, self.address, self._answers, self._over = loop, client, address, answers, over
        self._reader = RequestReader()
        self._queue: deque[Request] = deque()
        self._resume: asyncio.Event = asyncio.Event()
        self._resume.set()
        self._transport: asyncio.Transport | None = None
        self._writer: asyncio.Task[None] | None = None
        self.deadline = loop.time() + HEAD
        self._begun = loop.create_task(self._begin(context))

    async def _begin(self, context: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, self._socket, ssl=context, ssl_handshake_timeout=HEAD
            )
        except (OSError, ssl.SSLError, asyncio.TimeoutError):
            self._socket.close()
            self._over(self)

    @property
    def busy(self) -> bool:
        """Whether an answer is under way, or the handshake."""
        if self._transport is None:
            return not self._begun.done()
        writing = self._writer is not None and not self._writer.done()
        return writing or bool(self._queue) or self._transport.get_write_buffer_size() > 0

    def close(self) -> None:
        """End it now, whatever is under way."""
        self._begun.cancel()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._socket.close()
            self._over(self)

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("not the transport of a socket")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._queue.extend(self._reader.feed(data))
        if len(self._queue) > PIPELINED and self._transport is not None:
            self._transport.pause_reading()
        if self._queue and (self._writer is None or self._writer.done()):
            self._writer = self._loop.create_task(self._write())

    def connection_lost(self, _error: Exception | None) -> None:
        """It is over."""
        if self._writer is not None:
            self._writer.cancel()
        self._over(self)

    def pause_writing(self) -> None:
        """The socket is full."""
        self._resume.clear()

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._resume.set()

    async def _write(self) -> None:
        if self._transport is None:
            raise RuntimeError("nothing is under way")
        while self._queue:
            request = self._queue.popleft()
            if request.problem:
                answer = self._answers.refusal(request.problem, "this request is refused", close=True)
            else:
                answer = self._answers.answer(request.method, request.path, request.headers)
            keep = request.keep_alive and not request.problem
            line = b"Connection: close\r\n\r\n" if not keep else b"Connection: keep-alive\r\n\r\n"
            self._transport.write(answer.head[:-2] + (line if not keep or request.old else b"\r\n"))
            sent = 0
            try:
                for chunk in _chunks(answer):
                    self.deadline = self._loop.time() + STALL
                    await self._resume.wait()
                    self._transport.write(chunk)
                    sent += len(chunk)
            except OSError:
                self._transport.abort()
                return
            finally:
                self._answers.ledger.sent(answer, self.address, sent, sent == answer.length)
            if not keep:
                self._transport.close()
                return
        self._transport.resume_reading()
        self.deadline = self._loop.time() + IDLE


def _chunks(answer: Answer) -> Iterator[bytes]:
    for segment in answer.segments:
        for start in range(0, segment.length, _CHUNK):
            stop = min(segment.length, start + _CHUNK)
            if isinstance(segment, BaseRange):
                if answer.image is None:
                    raise RuntimeError("nothing is under way")
                if not answer.image.file.intact(0.0):
                    raise OSError("the base was changed")
                data = os.pread(answer.image.file.fd, stop - start, segment.offset + start)
                if len(data) != stop - start:
                    raise OSError("the base became shorter")
                yield data
            elif isinstance(segment, Bytes):
                yield segment.data[start:stop]
            else:
                yield bytes(stop - start)
