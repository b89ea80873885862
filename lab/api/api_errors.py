# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API's error envelope: every refusal is one of these."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A refusal as the API words it: HTTP status, error code, message and details."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


def not_found(kind: str, identifier: object) -> ApiError:
    """404 for an object that does not exist (or belongs to another project)."""
    return ApiError(404, "not_found", f"{kind} with ID '{identifier}' not found")


def invalid_input(fields: dict[str, list[str]], message: str | None = None) -> ApiError:
    """422 naming every wrong field and what is wrong with it."""
    if message is None:
        message = "invalid input in field " + ", ".join(f"'{name}'" for name in fields)
    details = {"fields": [{"name": name, "messages": messages} for name, messages in fields.items()]}
    return ApiError(422, "invalid_input", message, details)


def not_unique(field: str, message: str) -> ApiError:
    """409 for a name or key that the project already has."""
    return ApiError(409, "uniqueness_error", message, {"fields": [{"name": field}]})


def locked(kind: str) -> ApiError:
    """423 while an action runs on the object."""
    return ApiError(423, "locked", f"cannot perform operation because {kind} is locked")


def protected(what: str) -> ApiError:
    """423 for an object whose protection forbids the operation."""
    return ApiError(423, "protected", f"{what} is protected")


def limit_exceeded(limit: str, message: str) -> ApiError:
    """403 when the project may not have more of something."""
    return ApiError(403, "resource_limit_exceeded", message, {"limits": [{"name": limit}]})


def unavailable(message: str) -> ApiError:
    """412 when the provider is out of stock."""
    return ApiError(412, "resource_unavailable", message)


def no_room(code: str) -> ApiError:
    """412 when no host takes the server: out of stock, or none that its placement group allows."""
    return ApiError(412, code, "error during placement")


def unsupported(message: str) -> ApiError:
    """422 for an operation that the object, or the lab, cannot do."""
    return ApiError(422, "unsupported_error", message)
