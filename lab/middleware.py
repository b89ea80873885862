# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every request to either API passes: scripted faults, and the log of requests."""

from __future__ import annotations

import abc
import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

from aiohttp import web

from .faults import ApiName, Faults, RequestFault

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
