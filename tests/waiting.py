# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for what another process does: the event counts, the limit only ends a wait that would never end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    check: Callable[[], T],
    what: str,
    seconds: float = 180,
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
            seen = "" if show is None else f"\n{show()}"
            raise AssertionError(f"{what}: not within {seconds:.0f} s{seen}")
        time.sleep(pause)
