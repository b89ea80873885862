# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/vswitch: virtual switches and their members. They connect nothing."""

from __future__ import annotations

import itertools
import re
from typing import Any

from aiohttp import web

from lab.numbers import whole_number

from .account import Account
from .forms import Form, account, answer, form
from .model import Dedicated, VSwitch
from .robot_errors import RobotError, invalid_input, not_found, server_not_found
from .robot_views import identity

routes = web.RouteTableDef()
_FIRST = 4321
_VLANS = range(4000, 4092)
_MOST_SERVERS = 100
_MOST_PER_SERVER = 5
_DATE = re.compile(r"(?:[0-9]{2}|[0-9]{4})-[0-9]{2}-[0-9]{2}")


@routes.get("/vswitch")
async def list_switches(request: web.Request) -> web.Response:
    """All switches, in short form; a list without wrappers, which may be empty."""
    return answer([_head(item) for item in account(request).vswitches.values()])


@routes.post("/vswitch")
async def create_switch(request: web.Request) -> web.Response:
    """A new switch."""
    owner, fields = account(request), await form(request)
    fields.require("name", "vlan")
    number = next(free for free in itertools.count(_FIRST) if free not in owner.vswitches)
    item = owner.vswitches[number] = VSwitch(number, fields.text("name"), _vlan(fields))
    return answer(_view(owner, item), status=201)


@routes.get("/vswitch/{vswitch}")
async def get_switch(request: web.Request) -> web.Response:
    """One switch with its members."""
    return answer(_view(account(request), _switch(request)))


@routes.post("/vswitch/{vswitch}")
async def change_switch(request: web.Request) -> web.Response:
    """Another name and VLAN."""
    item, fields = _switch(request), await form(request)
    fields.require("name", "vlan")
    vlan = _vlan(fields)
    _check_idle(request, item)
    for number in item.members:
        _check_vlan(account(request), item, vlan, number)
    item.name, item.vlan = fields.text("name"), vlan
    return web.Response(status=201)


@routes.delete("/vswitch/{vswitch}")
async def cancel_switch(request: web.Request) -> web.Response:
    """Cancel now, or for a day; the lab never executes the latter."""
    item, fields = _switch(request), await form(request)
    fields.require("cancellation_date")
    date = fields.text("cancellation_date")
    if date != "now" and not _DATE.fullmatch(date):
        raise invalid_input(invalid=["cancellation_date"])
    if item.cancelled:
        raise RobotError(409, "CONFLICT", "The vSwitch is already cancelled")
    item.cancelled = True
    if date == "now":
        del account(request).vswitches[item.id]
    return web.Response()


@routes.post("/vswitch/{vswitch}/server")
async def add_servers(request: web.Request) -> web.Response:
    """Add servers to the switch; all of them, or none."""
    owner, item = account(request), _switch(request)
    servers = [server for server in await _servers(request) if server.number not in item.members]
    _check_idle(request, item)
    for server in servers:
        _check_vlan(owner, item, item.vlan, server.number)
        if sum(server.number in other.members for other in owner.vswitches.values()) >= _MOST_PER_SERVER:
            raise RobotError(
                409, "VSWITCH_PER_SERVER_LIMIT_REACHED", f"Server {server.number} is in too many vSwitches"
            )
    if len(item.members) + len(servers) > _MOST_SERVERS:
        raise RobotError(409, "VSWITCH_SERVER_LIMIT_REACHED", "The maximum number of servers is reached")
    item.members |= {server.number: owner.now + owner.settings.process_seconds for server in servers}
    return web.Response(status=201)


@routes.delete("/vswitch/{vswitch}/server")
async def remove_servers(request: web.Request) -> web.Response:
    """Remove servers from the switch."""
    item, servers = _switch(request), await _servers(request)
    _check_idle(request, item)
    for server in servers:
        if server.number not in item.members:
            raise server_not_found(str(server.number))
    for server in servers:
        item.members.pop(server.number, None)
    return web.Response()


def _switch(request: web.Request) -> VSwitch:
    item = account(request).vswitches.get(whole_number(request.match_info["vswitch"]) or 0)
    if item is None:
        raise not_found("vSwitch not found")
    return item


async def _servers(request: web.Request) -> list[Dedicated]:
    """The servers of the form, by number, main address or IPv6 network."""
    owner, fields = account(request), await form(request)
    names = fields.many("server")
    if not names:
        raise invalid_input(missing=["server"])
    found = [(name, owner.named(name)) for name in names]
    unknown = [name for name, server in found if server is None]
    if unknown:
        raise server_not_found(", ".join(unknown))
    return [server for _name, server in found if server is not None]


def _vlan(fields: Form) -> int:
    vlan = whole_number(fields.text("vlan"))
    if vlan is None or vlan not in _VLANS:
        raise invalid_input(invalid=["vlan"])
    return vlan


def _check_idle(request: web.Request, item: VSwitch) -> None:
    if item.busy(account(request).now):
        raise RobotError(409, "VSWITCH_IN_PROCESS", "There is already a running update of this vSwitch")


def _check_vlan(owner: Account, item: VSwitch, vlan: int, number: int) -> None:
    for other in owner.vswitches.values():
        if other is not item and not other.cancelled and other.vlan == vlan and number in other.members:
            raise RobotError(409, "VSWITCH_VLAN_NOT_UNIQUE", f"Server {number} is in another vSwitch of VLAN {vlan}")


def _head(item: VSwitch) -> dict[str, Any]:
    return {"id": item.id, "name": item.name, "vlan": item.vlan, "cancelled": item.cancelled}


def _view(owner: Account, item: VSwitch) -> dict[str, Any]:
    members = [
        identity(owner.servers[number]) | {"status": "in process" if owner.now < until else "ready"}
        for number, until in item.members.items()
    ]
    return _head(item) | {"server": members, "subnet": [], "cloud_network": []}
