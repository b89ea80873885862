# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The door of Robot: lock-out, credentials, requests per hour, error envelope."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable

from aiohttp import web

from lab.door import Door, Handler, RequestLog
from lab.faults import RequestFault
from lab.robot.account import Account
from lab.robot.errors import RobotError, not_found, rate_limit_exceeded, unauthorized
from lab.robot.limits import LIMITS, Limits
from lab.robot.lockout import Lockout

log = logging.getLogger(__name__)


class Guards:
    """What the door remembers between requests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.limits = Limits(clock)
        self.lockout = Lockout(clock)

    def clear(self) -> None:
        """Forget all requests and failed logins."""
        self.limits.clear()
        self.lockout.clear()


class Gate(Door):
    """One webservice user; who fails to log in three times is shut out for ten minutes."""

    api = "robot"

    def __init__(self, account: Account, guards: Guards, requests: RequestLog) -> None:
        super().__init__(account.cloud.faults, requests)
        self.account = account
        self.guards = guards

    async def admit(
        self, request: web.Request, handler: Handler, fault: RequestFault | None, correlation: str
    ) -> web.StreamResponse:
        """Credentials first, then the limit of this route, then the fault."""
        try:
            self._authenticate(request)
            self.guards.limits.take(route_of(request))
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
        if self.guards.lockout.shut_out(address):
            raise unauthorized()
        credentials = _basic(request.headers.get("Authorization", ""))
        if credentials is None:
            raise unauthorized()
        named = (request.match_info.get("server", ""),)
        if self.account.login(*credentials) and self.faults.boot(named, {"password_rotated"}) is not None:
            self.account.rotate_password()
        if not self.account.login(*credentials):
            self.guards.lockout.failed(address)
            raise unauthorized()
        self.guards.lockout.succeeded(address)

    def _struck(self, fault: RequestFault, request: web.Request) -> web.Response:
        route = route_of(request)
        if fault.code == "RATE_LIMIT_EXCEEDED" and route in LIMITS:
            return error_answer(rate_limit_exceeded(LIMITS[route], self.guards.limits.interval(route)))
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
