# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for what another process does: the event counts, the limit only ends a wait that would never end."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    check: Callable[[], T],
    what: str,
    seconds: float = 600,
    pause: float = 0.05,
    show: Callable[[], object] | None = None,
) -> T:
    """Return the first true value of a check; say what was waited for, and what ``show`` finds, when none comes.

    The limit is long on purpose: a loaded machine may be slow, and when all is well it costs nothing.
    """
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline  # asked before the check: a process that was paused looks once more
        found = check()
        if found:
            return found
        if late:
            raise AssertionError(_missed(what, seconds, show))
        time.sleep(pause)


async def until_async(
    check: Callable[[], Awaitable[T]],
    what: str,
    seconds: float = 600,
    pause: float = 0.05,
    show: Callable[[], object] | None = None,
) -> T:
    """The same for a check that is a coroutine; the event loop goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline
        found = await check()
        if found:
            return found
        if late:
            raise AssertionError(_missed(what, seconds, show))
        await asyncio.sleep(pause)


def _missed(what: str, seconds: float, show: Callable[[], object] | None) -> str:
    return f"{what}: not within {seconds:.0f} s" + ("" if show is None else f"\n{show()}")
