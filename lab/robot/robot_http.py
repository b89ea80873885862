# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between aiohttp and Robot: lock-out, credentials, requests an hour for each route; forms in, answers and errors out.

Forms are fields, and lists as ``name[]`` or ``name[0]``.
"""

from __future__ import annotations

import base64
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from lab.api.schemas import whole_number
from lab.faults import ApiMiddleware, Handler, RequestFault, RequestLog

from .account import Account
from .model import Dedicated


class RobotError(Exception):
    """A refusal as Robot words it; ``extra`` are the further fields of some codes."""

    def __init__(self, status: int, code: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.extra = extra

    def body(self) -> dict[str, Any]:
        return {"error": {"status": self.status, "code": self.code, "message": self.message, **self.extra}}


def unauthorized() -> RobotError:
    """401: wrong credentials, none, or an address that is locked out."""
    return RobotError(401, "UNAUTHORIZED", "Unauthorized")


def not_found(what: str = "Not Found") -> RobotError:
    """404 for an unknown path or key, and for lists that would be empty."""
    return RobotError(404, "NOT_FOUND", what)


def server_not_found(text: str) -> RobotError:
    """404 for a server that does not exist, or belongs to another account."""
    return RobotError(404, "SERVER_NOT_FOUND", f"Server with id {text} not found")


def invalid_input(missing: Sequence[str] = (), invalid: Sequence[str] = ()) -> RobotError:
    """400 naming the fields that are missing and those that are wrong."""
    return RobotError(
        400, "INVALID_INPUT", "invalid input", missing=list(missing) or None, invalid=list(invalid) or None
    )


def rate_limit_exceeded(limit: int, interval: int) -> RobotError:
    """403 when an hour's requests are used up; documentation and service spell the limit's field differently."""
    return RobotError(
        403, "RATE_LIMIT_EXCEEDED", "rate limit exceeded", max_request=limit, max_requests=limit, interval=interval
    )


_INDEXED = re.compile(r"(?P<name>[^\[\]]+)\[[0-9]*\]")
_MAX_FIELDS = 1000
ACCOUNT: web.AppKey[Account] = web.AppKey("account", Account)


class Form:
    """The decoded fields of one request; a body that is no form has none."""

    def __init__(self, text: str, content_type: str = "application/x-www-form-urlencoded") -> None:
        self._fields: dict[str, list[str]] = {}
        if content_type != "application/x-www-form-urlencoded":
            return
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            pairs = []
        for key, value in pairs:
            match = _INDEXED.fullmatch(key)
            self._fields.setdefault(match["name"] if match else key, []).append(value)

    def require(self, *names: str) -> None:
        """Refuse the request, naming every one of these fields that is not there."""
        missing = [name for name in names if not self.text(name)]
        if missing:
            raise invalid_input(missing=missing)

    def text(self, name: str, default: str = "") -> str:
        """One value; the last one wins."""
        return self._fields.get(name, [default])[-1]

    def flag(self, name: str, default: bool) -> bool:
        """A switch, written true or false (or 1 and 0)."""
        text = self.text(name).lower()
        if text not in ("", "true", "false", "1", "0"):
            raise invalid_input(invalid=[name])
        return default if text == "" else text in ("true", "1")

    def has(self, name: str) -> bool:
        """Whether any field of this name is there, nested ones included."""
        return any(key == name or key.startswith(f"{name}[") for key in self._fields)

    def rows(self, name: str, chain: str) -> list[dict[str, str]]:
        """The rows of ``name[chain][0][field]``, by their numbers."""
        pattern = re.compile(rf"{re.escape(name)}\[{re.escape(chain)}\]\[([0-9]{{1,4}})\]\[([a-z_]+)\]")
        rows: dict[int, dict[str, str]] = {}
        for key, values in self._fields.items():
            if match := pattern.fullmatch(key):
                rows.setdefault(whole_number(match[1]) or 0, {})[match[2]] = values[-1]
        return [rows[number] for number in sorted(rows)]

    def many(self, name: str) -> list[str]:
        return [value for value in self._fields.get(name, []) if value]


def account(request: web.Request) -> Account:
    return request.config_dict[ACCOUNT]


def server(request: web.Request) -> Dedicated:
    """The server of the path; it may be named by its number or its main address."""
    text = request.match_info["server"]
    found = account(request).named(text)
    if found is None:
        raise server_not_found(text)
    return found


async def form(request: web.Request) -> Form:
    """The fields of the body; bytes that are no text are no form."""
    try:
        text = await request.text()
    except (UnicodeDecodeError, LookupError):
        return Form("")
    return Form(text, request.content_type)


def identity(server: Dedicated) -> dict[str, Any]:
    """The three fields with which most answers begin."""
    return {"server_ip": server.ipv4, "server_ipv6_net": server.ipv6_net, "server_number": server.number}


def answer(data: Any, status: int = 200) -> web.Response:
    return web.json_response(data, status=status)


HOUR = 3600
_KINDS = ("rescue", "linux", "vnc", "windows", "plesk", "cpanel")


def _limits(rows: str) -> dict[str, int]:
    """Rows of: requests an hour, methods, path pattern."""
    split = (row.split() for row in rows.strip().splitlines())
    return {f"{method} {path}": int(limit) for limit, methods, path in split for method in methods.split(",")}


#: Requests an hour by method and path pattern.
LIMITS: dict[str, int] = _limits(
    """
    200 GET /server
    200 GET,POST /server/{server}
    500 GET /reset
    500 GET /reset/{server}
    50 POST /reset/{server}
    500 GET /wol/{server}
    10 POST /wol/{server}
    500 GET /boot/{server}
    500 GET /boot/{server}/rescue/last
    500 GET /boot/{server}/linux/last
    500 GET /key
    200 POST /key
    500 GET /key/{fingerprint}
    200 POST,DELETE /key/{fingerprint}
    5000 GET /ip
    5000 GET,POST /ip/{ip}
    5000 GET /ip/{ip}/mac
    10 PUT,DELETE /ip/{ip}/mac
    5000 GET /subnet
    5000 GET,POST /subnet/{ip}
    500 GET /rdns
    500 GET,PUT,POST,DELETE /rdns/{ip}
    100 GET /failover
    100 GET /failover/{ip}
    50 POST,DELETE /failover/{ip}
    500 GET,POST,DELETE /firewall/{server}
    500 GET,POST /firewall/template
    500 GET,POST,DELETE /firewall/template/{template}
    500 GET /vswitch
    100 POST /vswitch
    500 GET /vswitch/{vswitch}
    100 POST,DELETE /vswitch/{vswitch}
    100 POST,DELETE /vswitch/{vswitch}/server
    """
    + "".join(f"500 GET,POST,DELETE /boot/{{server}}/{kind}\n" for kind in _KINDS)
)
FAILURES = 3
LOCKOUT_SECONDS = 600


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


class Lockout:
    """Counts failed logins by source address; a good login resets the count."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, list[float]] = {}
        self._until: dict[str, float] = {}

    def locked_out(self, address: str) -> bool:
        """Whether every login of this address is refused."""
        until = self._until.get(address)
        if until is not None and until <= self._clock():
            del self._until[address]
            return False
        return until is not None

    def failed(self, address: str) -> None:
        now = self._clock()
        recent = [at for at in self._failures.get(address, []) if at > now - LOCKOUT_SECONDS]
        self._failures[address] = [*recent, now]
        if len(recent) + 1 >= FAILURES:
            self._until[address] = now + LOCKOUT_SECONDS
            del self._failures[address]

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)

    def clear(self) -> None:
        self._failures.clear()
        self._until.clear()


log = logging.getLogger(__name__)


class RequestCounts:
    """What is counted between requests: requests of each route, and failed logins."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.limits = Limits(clock)
        self.lockout = Lockout(clock)

    def clear(self) -> None:
        self.limits.clear()
        self.lockout.clear()


class RobotAuth(ApiMiddleware):
    """One webservice user; an address is locked out for ten minutes after three failed logins."""

    api = "robot"

    def __init__(self, account: Account, counts: RequestCounts, requests: RequestLog) -> None:
        super().__init__(account.cloud.faults, requests)
        self.account = account
        self.counts = counts

    async def admit(
        self, request: web.Request, handler: Handler, fault: RequestFault | None, correlation: str
    ) -> web.StreamResponse:
        """Credentials first, then the limit of this route, then the fault."""
        try:
            self._authenticate(request)
            self.counts.limits.take(route_of(request))
            if fault is not None and not fault.happens:
                return self._struck(fault, request)
            response = await handler(request)
            return response if fault is None or fault.garble else self._struck(fault, request)
        except RobotError as error:
            return error_answer(error)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            refusal = self.refusal(405, "METHOD_NOT_ALLOWED", f"{request.method} is not allowed here")
            refusal.headers["Allow"] = allowed
            return refusal
        except web.HTTPNotFound:
            return error_answer(not_found())
        except web.HTTPException as error:
            return self.refusal(error.status, "INVALID_INPUT", error.reason)
        except Exception:
            log.exception("%s %s", request.method, request.path_qs)
            return self.refusal(500, "INTERNAL_ERROR", "internal error")

    def refusal(self, status: int, code: str, message: str) -> web.Response:
        """The error envelope of Robot."""
        return error_answer(RobotError(status, code, message))

    def _authenticate(self, request: web.Request) -> None:
        address = request.remote or ""
        if self.counts.lockout.locked_out(address):
            raise unauthorized()
        credentials = _basic(request.headers.get("Authorization", ""))
        if credentials is None:
            raise unauthorized()
        named = (request.match_info.get("server", ""),)
        if self.account.login(*credentials) and self.faults.boot(named, {"password_rotated"}) is not None:
            self.account.rotate_password()
        if not self.account.login(*credentials):
            self.counts.lockout.failed(address)
            raise unauthorized()
        self.counts.lockout.succeeded(address)

    def _struck(self, fault: RequestFault, request: web.Request) -> web.Response:
        route = route_of(request)
        if fault.code == "RATE_LIMIT_EXCEEDED" and route in LIMITS:
            return error_answer(rate_limit_exceeded(LIMITS[route], self.counts.limits.interval(route)))
        return self.faulty(fault)


def route_of(request: web.Request) -> str:
    """Method and path pattern, such as "POST /reset/{server}"; only the method for an unknown path."""
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource is not None else ''}"


def error_answer(error: RobotError) -> web.Response:
    """An error as Robot answers it."""
    headers = {"WWW-Authenticate": 'Basic realm="Robot Webservice"'} if error.status == 401 else None
    return web.json_response(error.body(), status=error.status, headers=headers)


def _basic(header: str) -> tuple[str, str] | None:
    """User and password of Basic authentication; None when there are none."""
    scheme, _dummy, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # no base64, or no UTF-8
        return None
    return (user, password) if colon else None
