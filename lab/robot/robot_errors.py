# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Robot's error envelope: every refusal is one of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
