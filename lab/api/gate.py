# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every request passes: rate limit, token, scripted faults, error envelope, headers."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from lab.api.bucket import Bucket
from lab.api.errors import ApiError
from lab.api.http import answer
from lab.faults import Faults, RequestFault

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOG_LENGTH = 20_000


@dataclass
class Gate:
    """The door of the API. ``requests`` remembers what came through, newest last."""

    token: str
    read_only_token: str
    faults: Faults
    project: Bucket
    strangers: Bucket
    requests: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LOG_LENGTH))

    def middleware(self) -> Any:
        """The door as an aiohttp middleware."""

        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            correlation, started = secrets.token_hex(8), time.time()
            bucket = self.project if self.access(request) else self.strangers
            path = request.path.removeprefix("/v1")
            fault = self.faults.request(request.method, path)
            response = await self._respond(request, handler, bucket, fault)
            response.headers.update(bucket.headers())
            response.headers["X-Correlation-Id"] = correlation
            self.requests.append(
                {
                    "at": started,
                    "seconds": round(time.time() - started, 6),
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
            return response

        return gate

    def access(self, request: web.Request) -> str:
        """ "write", "read" or "" for the token of this request."""
        scheme, _dummy, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return ""
        given = token.strip().encode()
        if hmac.compare_digest(given, self.token.encode()):
            return "write"
        return "read" if hmac.compare_digest(given, self.read_only_token.encode()) else ""

    async def _respond(
        self, request: web.Request, handler: Handler, bucket: Bucket, fault: RequestFault | None
    ) -> web.StreamResponse:
        if fault is not None and fault.delay:
            await asyncio.sleep(fault.delay)
        if not bucket.take():
            error = ApiError(429, "rate_limit_exceeded", f"limit of {bucket.limit} requests per hour reached")
            return answer(error.body(), error.status)
        if fault is not None and not fault.after_effect:
            return _faulty(fault)
        response = await self._handle(request, handler)
        return response if fault is None else _faulty(fault)

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            access = self.access(request)
            if not access:
                raise ApiError(401, "unauthorized", "unable to authenticate")
            if access == "read" and request.method not in _READS:
                raise ApiError(401, "token_readonly", "the token is only allowed to perform read requests")
            return await handler(request)
        except ApiError as error:
            return answer(error.body(), error.status)
        except web.HTTPMethodNotAllowed as error:
            refusal = ApiError(405, "method_not_allowed", f"{request.method} is not allowed here")
            return answer(refusal.body(), 405, {"Allow": ", ".join(sorted(error.allowed_methods))})
        except web.HTTPNotFound:
            return answer(ApiError(404, "not_found", f"no such route: {request.path}").body(), 404)
        except web.HTTPException as error:
            return answer(ApiError(error.status, "invalid_input", error.reason).body(), error.status)
        except Exception:
            log.exception("%s %s", request.method, request.path_qs)
            return answer(ApiError(500, "server_error", "internal server error").body(), 500)


def _faulty(fault: RequestFault) -> web.Response:
    if fault.code is None:
        # What a proxy in front of the API says: no JSON.
        return web.Response(
            status=fault.status, text=f"<html><body>{fault.status}</body></html>", content_type="text/html"
        )
    return answer(ApiError(fault.status, fault.code, fault.message).body(), fault.status)
