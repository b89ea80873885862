# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults on request: a small script that is consulted at four points and does nothing by default.

And what every request to either API passes: the faults, and the log of requests.
"""

from __future__ import annotations

import abc
import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from email.utils import formatdate
from typing import Annotated, Any, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

ApiName = Literal["cloud", "robot"]
BootEffect = Literal[
    "ignore_rescue", "dead", "slow", "deaf", "reset_failed", "host_keys_missing", "other_host_keys", "password_rotated"
]
#: What any machine can suffer when its power comes on; the other effects are of dedicated machines, each at its moment.
POWER_EFFECTS: frozenset[BootEffect] = frozenset({"ignore_rescue", "dead", "slow"})


class _Fault(BaseModel):
    """What all faults have: how often they strike, and how often they did."""

    model_config = ConfigDict(extra="forbid")

    times: int = Field(default=1, ge=1, description="strikes this often, then never again")
    skip: int = Field(default=0, ge=0, description="lets this many matching occasions pass first")
    fired: int = Field(default=0, ge=0, exclude=True)

    def strikes(self) -> bool:
        """Whether it strikes now, which is counted."""
        if self.fired >= self.times:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.fired += 1
        return True


class RequestFault(_Fault):
    """Answers an API request wrongly: instead of doing it, or after having done it."""

    point: Literal["request"] = "request"
    api: ApiName = "cloud"
    method: str | None = None
    path: str = Field(default=".*", description="regular expression for the whole path, in the Cloud API below /v1")
    status: int = Field(default=502, ge=400, le=599)
    code: str | None = Field(default=None, description="API error code; without one the body is a proxy's HTML")
    message: str = "injected fault"
    after_effect: bool = Field(default=False, description="the request is carried out, only its answer is lost")
    drop: bool = Field(default=False, description="the connection is closed without an answer")
    delay: float = Field(default=0, ge=0, description="seconds before the answer")
    garble: Literal["garbage", "half"] | None = Field(
        default=None, description="the real answer, with a body that is no JSON, or cut off in the middle"
    )

    @property
    def happens(self) -> bool:
        """Whether the request is carried out, also when its answer is lost."""
        return self.after_effect or self.garble is not None

    @field_validator("path")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"path '{value}' is no regular expression: {error}") from error
        return value

    def matches(self, api: ApiName, method: str, path: str) -> bool:
        meant = self.api == api and (self.method is None or self.method.upper() == method)
        return meant and bool(re.fullmatch(self.path, path))


class ActionFault(_Fault):
    """Makes an action fail, hang or take longer."""

    point: Literal["action"] = "action"
    machine: str | None = None
    command: str | None = None
    effect: Literal["error", "stuck", "slow"] = "error"
    code: str = "action_failed"
    message: str = "Action failed"
    delay: float = Field(default=0, ge=0, description="additional seconds")

    def matches(self, machine: str, command: str) -> bool:
        return self.machine in (None, machine) and self.command in (None, command)


class BootFault(_Fault):
    """Makes a boot go wrong, or what Robot does for a boot: see the lab's README for every effect."""

    point: Literal["boot"] = "boot"
    machine: str | None = Field(default=None, description="name, or the number of a dedicated server")
    effect: BootEffect = "ignore_rescue"
    delay: float = Field(default=0, ge=0, description="additional seconds before the guest starts")

    def matches(self, machine: Collection[str], effects: Collection[BootEffect]) -> bool:
        """Whether one of these effects on the machine of these names is meant."""
        return self.effect in effects and (self.machine is None or self.machine in machine)


class StockFault(_Fault):
    """There is no room for a new server of a type in a location, or of any type in any."""

    point: Literal["stock"] = "stock"
    server_type: str | None = None
    location: str | None = None
    code: Literal["resource_unavailable", "placement_error"] = "resource_unavailable"

    def matches(self, server_type: str, location: str) -> bool:
        return self.server_type in (None, server_type) and self.location in (None, location)


class ClockFault(_Fault):
    """Lets the Cloud API's clock, as its answers show it, differ from the host's until the script is forgotten."""

    point: Literal["clock"] = "clock"
    ahead: float = Field(description="seconds by which it is fast, or slow when negative")


AnyFault = RequestFault | ActionFault | BootFault | StockFault | ClockFault
Fault = Annotated[AnyFault, Field(discriminator="point")]
F = TypeVar("F", RequestFault, ActionFault, BootFault, StockFault)
_SCRIPT: TypeAdapter[list[AnyFault]] = TypeAdapter(list[Fault])


class Faults:
    """The script of one lab. Without a script every question is answered by None."""

    def __init__(self) -> None:
        self._script: list[AnyFault] = []
        self._cleared = asyncio.Event()

    def load(self, script: Any) -> None:
        """Append faults given as JSON values; raises pydantic.ValidationError for anything unknown."""
        self._script += _SCRIPT.validate_python(script if isinstance(script, list) else [script])

    def clear(self) -> None:
        """Forget the script and let stuck actions go on."""
        self._script.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()

    async def until_cleared(self) -> None:
        """What a stuck action waits for."""
        await self._cleared.wait()

    @property
    def ahead(self) -> float:
        """Seconds by which the Cloud API's clock is fast."""
        return sum(fault.ahead for fault in self._script if isinstance(fault, ClockFault))

    def report(self) -> list[dict[str, Any]]:
        """The script with the number of times each fault struck."""
        return [{**fault.model_dump(), "fired": fault.fired} for fault in self._script]

    def request(self, api: ApiName, method: str, path: str) -> RequestFault | None:
        """Asked once for every API request."""
        return self._first(RequestFault, api, method, path)

    def action(self, machine: str, command: str) -> ActionFault | None:
        """Asked once for every action, when it starts."""
        return self._first(ActionFault, machine, command)

    def stock(self, server_type: str, location: str) -> StockFault | None:
        """Asked once for every server that is ordered, and for each location that the lab chooses from."""
        return self._first(StockFault, server_type, location)

    def boot(self, machine: Collection[str], effects: Collection[BootEffect] = POWER_EFFECTS) -> BootFault | None:
        """Asked once for every occasion on which one of these effects can strike the machine of these names."""
        return self._first(BootFault, machine, effects)

    def _first(self, kind: type[F], *about: Any) -> F | None:
        """The first fault of a kind that is meant and strikes."""
        meant = (one for one in self._script if isinstance(one, kind) and one.matches(*about))
        return next((one for one in meant if one.strikes()), None)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RequestLog = deque[dict[str, Any]]
_LOG_LENGTH = 20_000


def new_log() -> RequestLog:
    """An empty log of requests; all APIs of a lab share one, newest last."""
    return deque(maxlen=_LOG_LENGTH)


class ApiMiddleware(abc.ABC):
    """The middleware of one API; each API says who is let in, and how its errors look."""

    api: ApiName
    prefix: str = ""  # what all its paths begin with; left out where paths are matched or shown

    def __init__(self, faults: Faults, requests: RequestLog) -> None:
        self.faults = faults
        self.requests = requests

    @abc.abstractmethod
    async def admit(
        self, request: web.Request, handler: Handler, fault: RequestFault | None, correlation: str
    ) -> web.StreamResponse:
        """The answer to a request whose scripted delay is over, with the headers of this API."""

    @abc.abstractmethod
    def refusal(self, status: int, code: str, message: str) -> web.Response:
        """An error in the words of this API."""

    def middleware(self) -> Any:
        @web.middleware
        async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
            correlation, started = secrets.token_hex(8), time.time()
            path = request.path.removeprefix(self.prefix)
            fault = self.faults.request(self.api, request.method, path)
            if fault is not None and fault.delay:
                await asyncio.sleep(fault.delay)
            response = await self.admit(request, handler, fault, correlation)
            if self.api == "cloud" and self.faults.ahead:
                response.headers["Date"] = formatdate(time.time() + self.faults.ahead, usegmt=True)
            self.requests.append(
                {
                    "at": started,
                    "seconds": round(time.time() - started, 6),
                    "api": self.api,
                    "method": request.method,
                    "path": path,
                    "query": request.query_string,
                    "status": response.status,
                    "fault": fault is not None,
                    "correlation_id": correlation,
                    "user_agent": request.headers.get("User-Agent", ""),
                }
            )
            if fault is not None and fault.drop and request.transport is not None:
                request.transport.abort()
            if fault is not None and fault.garble:
                return await _garbled(request, response, fault.garble)
            return response

        return handle

    def faulty(self, fault: RequestFault) -> web.Response:
        """The answer that a fault puts in the place of the real one."""
        if fault.code is None:
            # What a proxy in front of the API says: no JSON.
            text = f"<html><body>{fault.status}</body></html>"
            return web.Response(status=fault.status, text=text, content_type="text/html")
        return self.refusal(fault.status, fault.code, fault.message)


async def _garbled(request: web.Request, response: web.StreamResponse, how: str) -> web.StreamResponse:
    """The same answer with a body of which nothing can be made; cut in half, its connection ends in the middle."""
    whole = response.body if isinstance(response, web.Response) and isinstance(response.body, bytes) else b""
    headers = {name: value for name, value in response.headers.items() if name != "Content-Length"}
    if how == "garbage":
        return web.Response(status=response.status, headers=headers, body=b"\x00\xff{]" + whole[1:])
    cut = web.StreamResponse(status=response.status, headers=headers)
    cut.content_length = max(2, len(whole))
    await cut.prepare(request)
    await cut.write(whole[: len(whole) // 2] or b"{")
    if request.transport is not None:
        request.transport.close()
    return cut
