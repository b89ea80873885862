# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/key: the SSH keys of the account."""

from __future__ import annotations

from aiohttp import web

from lab.robot import keys, views
from lab.robot.errors import RobotError, not_found
from lab.robot.http import account, answer, form
from lab.robot.model import Key

routes = web.RouteTableDef()


@routes.get("/key")
async def list_keys(request: web.Request) -> web.Response:
    """All keys."""
    items = [{"key": views.key(item)} for item in account(request).keys.values()]
    if not items:
        raise not_found("No keys found")
    return answer(items)


@routes.post("/key")
async def create_key(request: web.Request) -> web.Response:
    """Register a key; one key material is registered once, whatever its name."""
    owner, fields = account(request), await form(request)
    fields.require("name", "data")
    key = keys.parse(fields.text("name"), fields.text("data"), owner.now)
    if key.fingerprint in owner.keys:
        raise RobotError(409, "KEY_ALREADY_EXISTS", "The key already exists")
    owner.keys[key.fingerprint] = key
    return answer({"key": views.key(key)}, status=201)


@routes.get("/key/{fingerprint}")
async def get_key(request: web.Request) -> web.Response:
    """One key."""
    return answer({"key": views.key(_key(request))})


@routes.post("/key/{fingerprint}")
async def rename_key(request: web.Request) -> web.Response:
    """Give a key another name."""
    key, fields = _key(request), await form(request)
    fields.require("name")
    key.name = fields.text("name")
    return answer({"key": views.key(key)})


@routes.delete("/key/{fingerprint}")
async def delete_key(request: web.Request) -> web.Response:
    """Remove a key; a rescue that is armed with it keeps it."""
    del account(request).keys[_key(request).fingerprint]
    return web.Response()


def _key(request: web.Request) -> Key:
    key = account(request).keys.get(keys.normal_fingerprint(request.match_info["fingerprint"]))
    if key is None:
        raise not_found("Key not found")
    return key
