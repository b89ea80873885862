# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network namespaces without names: they live as long as somebody holds them, so a dead lab leaves none behind."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from .host import LabError, run

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class NetNs:
    """A network namespace of its own, held open by this process."""

    def __init__(self) -> None:
        """Make a new one (needs root)."""

        def make() -> int:
            _checked(_libc.unshare(_CLONE_NEWNET), "unshare")
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        self._fd = _in_thread(make)

    @property
    def path(self) -> str:
        """A path that other processes of this user can open."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def call(self, function: Callable[[], T]) -> T:
        """The result of ``function`` run inside: sockets made there stay there."""

        def inside() -> T:
            _checked(_libc.setns(self._fd, _CLONE_NEWNET), "setns")
            return function()

        return _in_thread(inside)

    def command(self, *command: str) -> list[str]:
        """The command line that runs ``command`` inside."""
        return ["nsenter", f"--net={self.path}", "--", *command]

    async def ip(self, *lines: str) -> None:
        """Run lines of ``ip`` commands inside."""
        await run(*self.command("ip", "-batch", "-"), text="\n".join(lines) + "\n")

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _checked(result: int, call: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise LabError(f"{call} of a network namespace failed: {os.strerror(code)} (the lab's network needs root)")


def _in_thread(function: Callable[[], T]) -> T:
    """Run in a thread that ends afterwards: the namespace of a thread is the thread's own."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
