# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How many requests Robot still takes: hourly limits per route, counted by this run, corrected by 403s (pure)."""

from __future__ import annotations

import random
from collections import deque

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

#: Seconds to hold a route after a 403. The answer tells the length of the window, not when it ends.
HOLD = (30.0, 60.0)


def route_of(method, path):
    """The route a limit counts for, such as POST /reset/{server}."""
    parts = path.strip("/").split("/")
    if len(parts) > 1:
        parts[1] = "{fingerprint}" if parts[0] == "key" else "{server}"
    return "%s /%s" % (method, "/".join(parts))


class Limits:
    """The windows of all routes. ``resets``: how many resets within an hour this run may count on."""

    def __init__(self, clock, resets=HOURLY[RESET], rng=None):
        self._clock = clock
        self._hourly = dict(HOURLY, **{RESET: resets})
        # Spreads requests in time; nothing about it is a secret.
        self._rng = rng or random.Random()
        self._sent = {}
        self._held_until = {}

    def hourly(self, route):
        """Requests of this route within an hour."""
        return self._hourly.get(route, OTHERWISE)

    def sent(self, route, age=0.0):
        """A request leaves, or left ``age`` seconds ago; on a held route it goes ahead alone."""
        now = self._clock()
        times = self._sent.setdefault(route, deque())
        times.append(now - age)
        if age:
            self._sent[route] = deque(sorted(times))
        if route in self._held_until:
            self._held_until[route] = now + HOLD[1]

    def taken(self, route):
        """A request was answered by anything but the limit."""
        self._held_until.pop(route, None)

    def refused(self, route, interval=WINDOW):
        """The answer was 403 RATE_LIMIT_EXCEEDED: somebody used up what our own count says is left.

        ``interval``: the length of the window, as the answer tells it.
        """
        self._held_until[route] = self._clock() + min(self._rng.uniform(*HOLD), interval)

    def held(self, route):
        """Seconds for which a 403 holds the route."""
        return max(0.0, self._held_until.get(route, 0.0) - self._clock())

    def delay(self, route):
        """Seconds until a request may be sent."""
        times, limit = self._recent(route), self.hourly(route)
        full = times[-limit] + WINDOW - self._clock() if len(times) >= limit else 0.0
        return max(0.0, full, self.held(route))

    def left(self, route):
        """Requests that may be sent now, as far as this run knows."""
        return 0 if self.held(route) else max(0, self.hourly(route) - len(self._recent(route)))

    def _recent(self, route):
        times = self._sent.get(route, deque())
        while times and times[0] <= self._clock() - WINDOW:
            times.popleft()
        return times


class ResetPlan:
    """Whether ``count`` resets fit into the hour, and the arithmetic in words."""

    def __init__(self, count, left, hourly):
        self.fits = count <= left
        self.hours = 0 if self.fits or hourly < 1 else -(-(count - left) // hourly)
        self.message = "%d machines need a reset by the Robot API, which takes %d an hour; %d can be sent now" % (
            count,
            hourly,
            left,
        )
        if not self.fits:
            late = "within about %d h" % self.hours if hourly else "never, with max_resets 0"
            self.message += ", and the other %d %s" % (count - left, late)
