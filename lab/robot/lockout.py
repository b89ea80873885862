# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who fails to log in too often is shut out for a while (pure; the clock is handed in)."""

from __future__ import annotations

from collections.abc import Callable

FAILURES = 3
SECONDS = 600


class Lockout:
    """Counts failed logins by source address; a good login starts the count anew."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, list[float]] = {}
        self._until: dict[str, float] = {}

    def shut_out(self, address: str) -> bool:
        """Whether this address is refused whatever it says."""
        until = self._until.get(address)
        if until is not None and until <= self._clock():
            del self._until[address]
            return False
        return until is not None

    def failed(self, address: str) -> None:
        """A login failed."""
        now = self._clock()
        recent = [at for at in self._failures.get(address, []) if at > now - SECONDS]
        self._failures[address] = [*recent, now]
        if len(recent) + 1 >= FAILURES:
            self._until[address] = now + SECONDS
            del self._failures[address]

    def succeeded(self, address: str) -> None:
        """A login was good."""
        self._failures.pop(address, None)

    def clear(self) -> None:
        """Let everybody in again."""
        self._failures.clear()
        self._until.clear()
