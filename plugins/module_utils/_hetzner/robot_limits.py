# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How many requests Robot still takes: hourly limits per route, as this run and earlier ones and 403s count them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .._common.safe_files import write_json
from .._common.text import json_value

WINDOW = 3600.0
RESET = "POST /reset/{server}"

#: Requests an account may make within an hour; 500 for every route that is not named here.
HOURLY = {
    "GET /server": 200,
    "GET /server/{server}": 200,
    "POST /server/{server}": 200,
    RESET: 50,
    "POST /wol/{server}": 10,
    "POST /key": 200,
}
OTHERWISE = 500
#: Characters that are read of a file with resets.
MOST_KEPT = 1 << 20

#: Seconds to hold a route after a 403. The answer gives the length of the window, not when it ends.
HOLD = (30.0, 60.0)


def route_of(method: str, path: str) -> str:
    """The route a limit counts for, such as POST /reset/{server}."""
    parts = path.strip("/").split("/")
    if len(parts) > 1:
        parts[1] = "{fingerprint}" if parts[0] == "key" else "{server}"
    return f"{method} /{'/'.join(parts)}"


class Limits:
    """The windows of all routes. ``resets``: how many resets within an hour this run may count on."""

    def __init__(
        self, clock: Callable[[], float], resets: int = HOURLY[RESET], rng: random.Random | None = None
    ) -> None:
        self._log: ResetLog | None = None
        self._clock = clock
        self._hourly = dict(HOURLY, **{RESET: resets})
        # Spreads requests in time; nothing about it is a secret.
        self._rng = rng or random.Random()
        #: The length of a route's window, where it is not an hour.
        self._windows: dict[str, float] = {}
        self._sent: dict[str, deque[float]] = {}
        self._held_until: dict[str, float] = {}

    def keep(self, log: ResetLog) -> None:
        """Count the resets of earlier runs, too, and let later ones count those of this run."""
        self._log = log
        self._limit(RESET, *log.limit())
        for age in log.ages():
            self.sent(RESET, age)

    @property
    def kept(self) -> bool:
        """Whether the resets of earlier steps and runs are counted already."""
        return self._log is not None

    def leaves(self, route: str) -> None:
        """A request goes out now."""
        if route == RESET and self._log:
            self._log.sent()

    def hourly(self, route: str) -> int:
        """Requests of this route within an hour."""
        return self._hourly.get(route, OTHERWISE)

    def sent(self, route: str, age: float = 0.0) -> None:
        """A request leaves, or left ``age`` seconds ago; on a held route it goes ahead alone."""
        now = self._clock()
        times = self._sent.setdefault(route, deque())
        times.append(now - age)
        if age:
            self._sent[route] = deque(sorted(times))
        if route in self._held_until:
            self._held_until[route] = now + HOLD[1]

    def taken(self, route: str) -> None:
        """A request was answered by anything but the limit."""
        self._held_until.pop(route, None)

    def refused(self, route: str, interval: float = WINDOW, most: int | None = None) -> None:
        """The answer was 403 RATE_LIMIT_EXCEEDED: others used up what our own count says is left.

        ``interval``: the length of the window, as the answer gives it; ``most``: how many requests it takes.
        """
        self._limit(route, most, interval)
        if route == RESET and self._log:
            self._log.refused(self.hourly(route), interval)
        self._held_until[route] = self._clock() + min(self._rng.uniform(*HOLD), interval)

    def held(self, route: str) -> float:
        """Seconds for which a 403 holds the route."""
        return max(0.0, self._held_until.get(route, 0.0) - self._clock())

    def delay(self, route: str) -> float:
        """Seconds until a request may be sent."""
        times, limit = self._recent(route), self.hourly(route)
        full = times[-limit] + self._window(route) - self._clock() if len(times) >= limit else 0.0
        return max(0.0, full, self.held(route))

    def left(self, route: str) -> int:
        """Requests that may be sent now, as far as this run knows."""
        return 0 if self.held(route) else max(0, self.hourly(route) - len(self._recent(route)))

    def _limit(self, route: str, most: int | None, interval: float) -> None:
        # The user's own limit of resets may be lower, and is for an hour.
        if most and (route != RESET or most < self._hourly[RESET]):
            self._hourly[route], self._windows[route] = most, interval

    def _window(self, route: str) -> float:
        return self._windows.get(route, WINDOW)

    def _recent(self, route: str) -> deque[float]:
        times = self._sent.get(route, deque())
        while times and times[0] <= self._clock() - self._window(route):
            times.popleft()
        return times


class ResetLog:
    """The resets that runs of one controller sent to an account, and the last time it was refused one, in a file.

    Nothing depends on it but how many resets a run counts on: what cannot be read or written is left out.
    """

    def __init__(self, folder: str, account: str, now: Callable[[], float] = time.time) -> None:
        digest = hashlib.sha256(account.encode("utf-8", "surrogateescape")).hexdigest()
        self._path = os.path.join(folder, f".robot-resets-{digest[:16]}")
        self._now = now

    def ages(self) -> list[float]:
        """Seconds since each reset that may still count. After a refusal, as many count as the API said.

        When they were sent it does not say: they are taken to lie evenly in the window before.
        """
        kept, now = self._read(), self._now()
        ages = [now - at for at in kept["sent"]]
        at, most, interval = kept["refused"] or (0, 0, 0)
        if 0 <= now - at < interval:
            ages = [age for age in ages if age < now - at]
            ages += [now - at + interval * number / most for number in range(most)]
        return sorted(age for age in ages if 0 <= age < WINDOW)

    def limit(self) -> tuple[int | None, float]:
        """How many resets a window takes and how long it is, as the last refusal said that still counts; else None."""
        at, most, interval = self._read()["refused"] or (0, 0, 0)
        return (most, interval) if 0 <= self._now() - at < interval else (None, WINDOW)

    def sent(self) -> None:
        """A reset is sent now."""
        self._change(lambda kept: kept["sent"].append(self._now()))

    def refused(self, most: int, interval: float) -> None:
        """It was refused: the window holds ``most`` resets, of this account's users together."""
        self._change(lambda kept: kept.update(refused=[self._now(), most, interval]))

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                return self._parse(json_value(file.read(MOST_KEPT)))
        except (OSError, ValueError):
            return {"sent": [], "refused": None}

    def _parse(self, found: Any) -> dict[str, Any]:
        kept = found if isinstance(found, dict) else {}
        sent = kept.get("sent")
        times = [at for at in sent if _is_number(at)] if isinstance(sent, list) else []
        recent = [at for at in times if 0 <= self._now() - at < WINDOW]
        return {"sent": recent, "refused": _refusal(kept.get("refused"))}

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path + ".lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                kept = self._read()
                change(kept)
                write_json(self._path, kept, durable=False)


def _refusal(value: Any) -> list[float] | None:
    """When it was, how many requests the window takes, and its length; None when it is none."""
    if not isinstance(value, list) or len(value) != 3 or not all(map(_is_number, value)):
        return None
    _at, most, interval = value
    return value if isinstance(most, int) and 0 < most <= 10000 and 0 < interval <= 24 * WINDOW else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class ResetPlan:
    """Whether ``count`` resets fit into the hour, and the arithmetic in words."""

    def __init__(self, count: int, left: int, hourly: int) -> None:
        self.fits = count <= left
        self.hours = 0 if self.fits or hourly < 1 else -(-(count - left) // hourly)
        self.message = (
            f"{count} machines need a reset by the Robot API, which takes {hourly} an hour; {left} can be sent now"
        )
        if not self.fits:
            late = f"within about {self.hours} h" if hourly else "never, with max_resets 0"
            self.message += f", and the other {count - left} {late}"
