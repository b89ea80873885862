# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How many API requests may still be made: a model of the project's token bucket (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .._common.text import whole_number

#: The bucket refills completely within this many seconds.
WINDOW = 3600.0


class Plan:
    """Whether a piece of work fits into the budget: ``fits`` at once, ``possible`` with pacing, or not at all."""

    def __init__(self, fits: bool, possible: bool, message: str) -> None:
        self.fits = fits
        self.possible = possible
        self.message = message


class Budget:
    """Follows ``RateLimit-*`` headers; between two answers it counts what was sent and what came back by time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.limit: int | None = None
        self._remaining = 0.0
        self._at = 0.0
        self._in_flight = 0
        self._answers = 0

    @property
    def known(self) -> bool:
        """Whether the limit is known from an answer."""
        return self.limit is not None

    @property
    def per_second(self) -> float:
        """Requests that come back each second."""
        return (self.limit or WINDOW) / WINDOW

    def remaining(self) -> float:
        """Requests that may be sent right now; infinite as long as nothing is known."""
        if self.limit is None:
            return math.inf
        return min(float(self.limit), self._remaining + (self._clock() - self._at) * self.per_second)

    def sent(self) -> int:
        """A request leaves; what is returned belongs to its answer."""
        if self.known:
            self._set(self.remaining() - 1)
        self._in_flight += 1
        return self._answers

    def answered(self, headers: Mapping[str, str], mark: int) -> None:
        """An answer, or none (an empty mapping), came back; ``mark`` is what `sent` returned for its request.

        Its headers are right but for what the API took after it: requests that are still on their way, and those that
        were answered meanwhile, since answers overtake each other.
        """
        overtook = self._answers - mark
        self._answers += 1
        self._in_flight = max(0, self._in_flight - 1)
        limit, remaining = (
            whole_number((headers.get("RateLimit-" + name) or "").strip()) for name in ("Limit", "Remaining")
        )
        if not limit or remaining is None:
            return
        self.limit = limit
        self._set(min(remaining, limit) - self._in_flight - overtook)

    def exhausted(self) -> None:
        """The API said that there is nothing left."""
        if not self.known:
            self.limit = int(WINDOW)
        self._set(min(0.0, self.remaining()))

    def delay(self) -> float:
        """Seconds until one more request may be sent."""
        missing = 1 - self.remaining()
        return max(0.0, missing / self.per_second) if self.known else 0.0

    def plan(self, requests: int, seconds: float, what: str) -> Plan:
        """Judge ``requests`` more requests to be sent within ``seconds``; ``what`` names the work in the message."""
        if self.limit is None:
            return Plan(True, True, f"{what}: about {requests} API requests; the API did not tell its limit")
        left = max(0, math.floor(self.remaining()))
        reachable = left + math.floor(seconds * self.per_second)
        need = f"{what} needs about {requests} API requests, {left} of {self.limit} are left"
        if requests <= left:
            return Plan(True, True, need)
        wait = math.ceil((requests - left) / self.per_second)
        refill = f"and {self.per_second:.2f} come back each second"
        if requests <= reachable:
            return Plan(False, True, f"{need} {refill}: paced, this costs about {wait} s")
        return Plan(
            False,
            False,
            f"{need} {refill}, so only {reachable} can be made within {int(seconds)} s. Wait about "
            f"{wait - math.floor(seconds)} s, name fewer machines, or raise the time limit.",
        )

    def outlook(self, requests: int, what: str, at_once: int, seconds_each: float) -> str:
        """What ``requests`` more requests will take, for people; ``seconds_each``: how long one took until now."""
        text = f"{what}: about {requests} API requests, {at_once} at a time"
        if self.limit is None:
            return text
        left = max(0, math.floor(self.remaining()))
        waits = max(0, requests - left) / self.per_second
        if waits:
            text += ", slowed down for the limit"
        seconds = max(waits, requests * seconds_each / at_once)
        duration = f"{math.ceil(seconds)} s" if seconds <= 90 else f"{math.ceil(seconds / 60)} min"
        return f"{text}, about {duration}; {max(0, left - requests)} of {self.limit} an hour will be left"

    def _set(self, remaining: float) -> None:
        self._remaining, self._at = float(remaining), self._clock()
