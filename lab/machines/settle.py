# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The door of a container's udev, /run/udev/control: `udevadm settle` knocks there and waits until it is let go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

_MESSAGE = 1 << 12
#: A message of udevadm: 16 bytes of version, a magic number, and its kind; this kind is the last one of a conversation.
_KIND = slice(20, 24)
_END = bytes(4)
#: Seconds for which the last message is waited for; before systemd 246 there was none.
_OLD = 2.0


class SettleDoor:
    """Answers each `udevadm settle` when the lab has shown what the kernel knows of the machine's disks."""

    def __init__(self, folder: Path, settled: Callable[[], Awaitable[None]]) -> None:
        """``folder`` is what the guest sees as /run/udev; ``settled`` returns when everything is shown there."""
        self._settled = settled
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{place}/control")  # a path may be longer than an address
        finally:
            os.close(place)
        self._socket.listen(128)
        self._tasks: set[asyncio.Task[None]] = set()
        self._start(self._answer())

    def close(self) -> None:
        """Ends all connections: a `udevadm settle` that still waits returns."""
        for task in self._tasks:
            task.cancel()
        self._socket.close()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            guest, _none = await loop.sock_accept(self._socket)
            self._start(self._hear(guest))

    async def _hear(self, guest: socket.socket) -> None:
        with guest, contextlib.suppress(ConnectionError):
            guest.setblocking(False)
            await asyncio.get_running_loop().sock_recv(guest, _MESSAGE)
            await self._settled()
            # udevadm fails when the connection is closed before its last message
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_all_heard(guest), _OLD)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _all_heard(guest: socket.socket) -> None:
    """Read until the last message, or until the guest has gone."""
    loop = asyncio.get_running_loop()
    while (message := await loop.sock_recv(guest, _MESSAGE)) and message[_KIND] != _END:
        pass
