# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sockets that are ready, many at a time: a busy client does not pay for a whole turn of the event loop per request.

An epoll set of its own inside an asyncio loop. The loop sees one descriptor; what is ready in it is handled here, and
as long as clients keep asking, without going back to the loop, whose other tasks get their turn every few milliseconds.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable

READ, WRITE = 1, 4  # EPOLLIN, EPOLLOUT; errors and hang-ups come unasked
_TURN = 0.004  # seconds until the loop gets its turn
_LINGER = 0.001  # seconds to wait here for the next request before the loop does the waiting


class Poller:
    """Calls back for sockets that can be read or written; lives in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is watched yet."""
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._turn)

    def add(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Watch a descriptor; ``callback`` is called with the events that came."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Watch it for other events."""
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        """Watch it no longer."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Watch nothing any more."""
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
