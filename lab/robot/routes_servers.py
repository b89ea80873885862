# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/server, /reset and /wol: servers, their names and their buttons."""

from __future__ import annotations

import re

from aiohttp import web

from lab.robot import views
from lab.robot.errors import RobotError, invalid_input, not_found
from lab.robot.http import account, answer, form, server
from lab.robot.model import Reset

routes = web.RouteTableDef()
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


@routes.get("/server")
async def list_servers(request: web.Request) -> web.Response:
    """All servers, shortly."""
    items = [{"server": views.server_item(item)} for item in account(request).ordered()]
    if not items:
        raise not_found("No server found")
    return answer(items)


@routes.get("/server/{server}")
async def get_server(request: web.Request) -> web.Response:
    """One server."""
    return answer({"server": views.server_details(server(request))})


@routes.post("/server/{server}")
async def rename_server(request: web.Request) -> web.Response:
    """Give a server another name."""
    found, fields = server(request), await form(request)
    fields.require("server_name")
    if not _NAME.fullmatch(fields.text("server_name")):
        raise invalid_input(invalid=["server_name"])
    found.name = fields.text("server_name")
    return answer({"server": views.server_details(found)})


@routes.get("/reset")
async def list_resets(request: web.Request) -> web.Response:
    """The ways to reset, of all servers that have any."""
    items = [{"reset": views.reset_item(item)} for item in account(request).ordered() if item.spec.reset]
    if not items:
        raise not_found("No reset option found")
    return answer(items)


@routes.get("/reset/{server}")
async def get_reset(request: web.Request) -> web.Response:
    """The ways to reset one server, and whether it has power."""
    found = server(request)
    if not found.spec.reset:
        raise _no_reset()
    status = "not supported"
    if found.spec.operating_status:
        status = "running" if account(request).chassis[found.number].powered else "shut off"
    return answer({"reset": {**views.reset_item(found), "operating_status": status}})


@routes.post("/reset/{server}")
async def post_reset(request: web.Request) -> web.Response:
    """Press a button; the answer says that it was pressed, not what came of it."""
    found, fields = server(request), await form(request)
    if not found.spec.reset:
        raise _no_reset()
    fields.require("type")
    kind = fields.text("type")
    if kind not in found.spec.reset:
        raise invalid_input(invalid=["type"])
    if found.manual_reset:
        raise RobotError(409, "RESET_MANUAL_ACTIVE", "There is already a running manual reset")
    owner = account(request)
    if owner.cloud.faults.boot(owner.chassis[found.number].names, {"reset_failed"}) is not None:
        raise RobotError(500, "RESET_FAILED", "Resetting failed due to an internal error")
    found.resets.append(Reset(owner.now, kind))
    found.manual_reset = kind == "man"
    await owner.press(found, kind)
    return answer({"reset": {**views.identity(found), "type": kind}})


@routes.get("/wol/{server}")
async def get_wol(request: web.Request) -> web.Response:
    """Whether a packet can wake this server."""
    found = server(request)
    if not found.spec.wol:
        raise _no_wol()
    return answer({"wol": views.identity(found)})


@routes.post("/wol/{server}")
async def post_wol(request: web.Request) -> web.Response:
    """Send the packet: a server that is off switches on."""
    found = server(request)
    if not found.spec.wol:
        raise _no_wol()
    await account(request).press(found, "wol")
    return answer({"wol": views.identity(found)})


def _no_reset() -> RobotError:
    return RobotError(404, "RESET_NOT_AVAILABLE", "The server has no reset option")


def _no_wol() -> RobotError:
    return RobotError(404, "WOL_NOT_AVAILABLE", "The server has no Wake On LAN feature")
