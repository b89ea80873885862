# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The token bucket behind the rate limit (pure; the clock is handed in)."""

from __future__ import annotations

import math
from collections.abc import Callable

_HOUR = 3600


class Bucket:
    """``limit`` requests an hour, all of which may be burst at once; tokens come back at a steady rate."""

    def __init__(self, limit: int, refill_per_second: float, clock: Callable[[], float]) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}; it must be at least 1 request per hour")
        if refill_per_second < 0:
            raise ValueError(f"refill_per_second is {refill_per_second}; it must not be negative")
        self.limit = limit
        self.refill_per_second = refill_per_second
        self._clock = clock
        self._tokens = float(limit)
        self._seen = clock()

    def take(self) -> bool:
        """Use up one token; False when there is none (a refused request costs nothing)."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def drain(self, remaining: int = 0) -> None:
        """Leave only ``remaining`` tokens, as if others had spent the rest."""
        self._refill()
        self._tokens = min(self._tokens, float(remaining))

    def headers(self) -> dict[str, str]:
        """The three headers of every answer; Reset is when the bucket will be full, in Unix seconds."""
        self._refill()
        missing = self.limit - self._tokens
        # A bucket that hardly fills is not full within the hour either; nobody waits longer to learn that.
        seconds = min(missing / self.refill_per_second, _HOUR) if self.refill_per_second else _HOUR * bool(missing)
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(int(self._tokens)),
            "RateLimit-Reset": str(math.ceil(self._seen + seconds)),
        }

    def _refill(self) -> None:
        now = self._clock()
        # A clock that was set back must not take tokens away.
        gained = max(0.0, now - self._seen) * self.refill_per_second
        self._tokens = min(float(self.limit), self._tokens + gained)
        self._seen = now
