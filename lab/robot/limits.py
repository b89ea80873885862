# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests per hour, counted for each route on its own (pure; the clock is handed in)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.robot.errors import rate_limit_exceeded

HOUR = 3600
_KINDS = ("rescue", "linux", "vnc", "windows", "plesk", "cpanel")

_READ_AND_WARN = (("GET", ""), ("GET", "/{ip}"), ("POST", "/{ip}"))

#: Requests an hour by method and path pattern.
LIMITS: dict[str, int] = {
    "GET /server": 200,
    "GET /server/{server}": 200,
    "POST /server/{server}": 200,
    "GET /reset": 500,
    "GET /reset/{server}": 500,
    "POST /reset/{server}": 50,
    "GET /wol/{server}": 500,
    "POST /wol/{server}": 10,
    "GET /boot/{server}": 500,
    **{f"{method} /boot/{{server}}/{kind}": 500 for kind in _KINDS for method in ("GET", "POST", "DELETE")},
    **{f"GET /boot/{{server}}/{kind}/last": 500 for kind in ("rescue", "linux")},
    "GET /key": 500,
    "POST /key": 200,
    "GET /key/{fingerprint}": 500,
    "POST /key/{fingerprint}": 200,
    "DELETE /key/{fingerprint}": 200,
    **{f"{method} /{kind}{tail}": 5000 for kind in ("ip", "subnet") for method, tail in _READ_AND_WARN},
    "GET /ip/{ip}/mac": 5000,
    "PUT /ip/{ip}/mac": 10,
    "DELETE /ip/{ip}/mac": 10,
    "GET /rdns": 500,
    **{f"{method} /rdns/{{ip}}": 500 for method in ("GET", "PUT", "POST", "DELETE")},
    "GET /failover": 100,
    "GET /failover/{ip}": 100,
    "POST /failover/{ip}": 50,
    "DELETE /failover/{ip}": 50,
    **{f"{method} /firewall/{{server}}": 500 for method in ("GET", "POST", "DELETE")},
    **{f"{method} /firewall/template": 500 for method in ("GET", "POST")},
    **{f"{method} /firewall/template/{{template}}": 500 for method in ("GET", "POST", "DELETE")},
    "GET /vswitch": 500,
    "GET /vswitch/{vswitch}": 500,
    "POST /vswitch": 100,
    **{f"{method} /vswitch/{{vswitch}}{tail}": 100 for method in ("POST", "DELETE") for tail in ("", "/server")},
}


@dataclass
class _Window:
    limit: int
    interval: float = HOUR
    taken: deque[float] = field(default_factory=deque)
    others: int = 0  #: requests of others that come right before the next one


class Limits:
    """At most so many requests of a route within any stretch of an hour; a refused request costs nothing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def take(self, route: str) -> None:
        """Count a request; RobotError 403 when there is none left. Routes without a limit are free."""
        if route not in LIMITS:
            return
        window, now = self._window(route), self._clock()
        window.taken.extend([now] * window.others)
        window.others = 0
        while window.taken and window.taken[0] <= now - window.interval:
            window.taken.popleft()
        if len(window.taken) >= window.limit:
            raise rate_limit_exceeded(window.limit, int(window.interval))
        window.taken.append(now)

    def leave(self, route: str, remaining: int, interval: float | None = None) -> None:
        """Act as if others made all but ``remaining`` requests right before the next one; maybe in a shorter window."""
        window = self._window(route)
        if interval is not None:
            window.interval = interval
        window.taken.clear()
        window.others = max(0, window.limit - remaining)

    def remaining(self, route: str) -> int:
        """How many requests of this route are left now."""
        window, now = self._window(route), self._clock()
        return window.limit - window.others - sum(taken > now - window.interval for taken in window.taken)

    def interval(self, route: str) -> int:
        """The length of this route's window in seconds."""
        return int(self._window(route).interval)

    def clear(self) -> None:
        """Forget every request."""
        self._windows.clear()

    def _window(self, route: str) -> _Window:
        return self._windows.setdefault(route, _Window(LIMITS[route]))
