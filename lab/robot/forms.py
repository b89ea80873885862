# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between aiohttp and Robot: errors, form bodies in (fields, and lists as ``name[]`` or ``name[0]``), answers out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from lab.numbers import whole_number

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


def answer(data: Any, status: int = 200) -> web.Response:
    return web.json_response(data, status=status)
