# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The same over TLS: bytes have to pass through this process, a few records at a time, straight into the socket.

A write that the socket did not take whole has to be made again with the same bytes; they are read from the base again,
so that a slow reader still holds no buffer but that of one record, which OpenSSL has.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable

from .answers import Answers
from .connection import Connection
from .poller import READ, WRITE, Poller

_RECORD = 16 * 1024  # the most that a record holds: what was decrypted is read whole, for no poller sees what is left


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

    def _part(self) -> None:
        try:
            self._tls.unwrap()  # says that nothing was cut off
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLError:  # the reader has not said the same yet; that is not waited for
            pass
        self._tls.shutdown(socket.SHUT_WR)
