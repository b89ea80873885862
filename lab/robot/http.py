# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between aiohttp and Robot: form bodies in, answers out."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from lab.robot.account import Account
from lab.robot.forms import Form
from lab.robot.model import Dedicated

ACCOUNT: web.AppKey[Account] = web.AppKey("account", Account)


def account(request: web.Request) -> Account:
    """The account this request is about."""
    return request.config_dict[ACCOUNT]


def server(request: web.Request) -> Dedicated:
    """The server of the path; it may be named by its number or its main address."""
    return account(request).server(request.match_info["server"])


async def form(request: web.Request) -> Form:
    """The fields of the body; bytes that are no text are no form."""
    try:
        text = await request.text()
    except (UnicodeDecodeError, LookupError):
        return Form("")
    return Form(text, request.content_type)


def answer(data: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.json_response(data, status=status)
