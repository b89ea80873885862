# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Middleware of the Cloud API: rate limit, token, error envelope, headers."""

from __future__ import annotations

import hmac
import logging
import math
from collections.abc import Callable

from aiohttp import web

from lab.faults import ApiMiddleware, Faults, Handler, RequestFault, RequestLog

from .api_errors import ApiError
from .http import answer

_HOUR = 3600
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


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
        # A bucket that hardly fills is not full within the hour either; no client waits longer to learn that.
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


log = logging.getLogger(__name__)


class CloudAuth(ApiMiddleware):
    """Two tokens, one bucket of requests for the project and one for requests without a valid token."""

    api = "cloud"
    prefix = "/v1"

    def __init__(
        self,
        token: str,
        read_only_token: str,
        faults: Faults,
        requests: RequestLog,
        *,
        project: Bucket,
        strangers: Bucket,
    ) -> None:
        super().__init__(faults, requests)
        self.token = token
        self.read_only_token = read_only_token
        self.project = project
        self.strangers = strangers

    def access(self, request: web.Request) -> str:
        """ "write", "read" or "" for the token of this request."""
        scheme, _dummy, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return ""
        given = token.strip().encode()
        if hmac.compare_digest(given, self.token.encode()):
            return "write"
        return "read" if hmac.compare_digest(given, self.read_only_token.encode()) else ""

    async def admit(
        self, request: web.Request, handler: Handler, fault: RequestFault | None, correlation: str
    ) -> web.StreamResponse:
        """Rate limit first, then the fault, then the token."""
        bucket = self.project if self.access(request) else self.strangers
        response = await self._respond(request, handler, bucket, fault)
        response.headers.update(bucket.headers())
        response.headers["X-Correlation-Id"] = correlation
        return response

    def refusal(self, status: int, code: str, message: str) -> web.Response:
        """An error as the Cloud API answers it."""
        return answer(ApiError(status, code, message).body(), status)

    async def _respond(
        self, request: web.Request, handler: Handler, bucket: Bucket, fault: RequestFault | None
    ) -> web.StreamResponse:
        if not bucket.take():
            return self.refusal(429, "rate_limit_exceeded", f"limit of {bucket.limit} requests per hour reached")
        if fault is not None and not fault.happens:
            return self.faulty(fault)
        response = await self._handle(request, handler)
        return response if fault is None or fault.garble else self.faulty(fault)

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
