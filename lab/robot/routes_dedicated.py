# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/server, /reset, /wol and /boot: servers, their buttons, and what the next boot takes."""

from __future__ import annotations

import re
import secrets

from aiohttp import web

from . import robot_views
from .account import Account
from .forms import Form, account, answer, form, server
from .model import KINDS, Activation, Dedicated, Key, Reset
from .robot_errors import RobotError, invalid_input, not_found

routes = web.RouteTableDef()
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
#: The field that names the system to boot or install.
_SYSTEM = {"rescue": "os", "linux": "dist", "vnc": "dist"}


@routes.get("/server")
async def list_servers(request: web.Request) -> web.Response:
    """All servers, in short form."""
    items = [{"server": robot_views.server_item(item)} for item in account(request).ordered()]
    if not items:
        raise not_found("No server found")
    return answer(items)


@routes.get("/server/{server}")
async def get_server(request: web.Request) -> web.Response:
    """One server."""
    return answer({"server": robot_views.server_details(server(request))})


@routes.post("/server/{server}")
async def rename_server(request: web.Request) -> web.Response:
    """Give a server another name."""
    found, fields = server(request), await form(request)
    fields.require("server_name")
    if not _NAME.fullmatch(fields.text("server_name")):
        raise invalid_input(invalid=["server_name"])
    found.name = fields.text("server_name")
    return answer({"server": robot_views.server_details(found)})


@routes.get("/reset")
async def list_resets(request: web.Request) -> web.Response:
    """The ways to reset, of all servers that have any."""
    items = [{"reset": robot_views.reset_item(item)} for item in account(request).ordered() if item.spec.reset]
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
        status = "running" if account(request).power_control[found.number].powered else "shut off"
    return answer({"reset": {**robot_views.reset_item(found), "operating_status": status}})


@routes.post("/reset/{server}")
async def post_reset(request: web.Request) -> web.Response:
    """Reset a server; the answer only says that the reset was started."""
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
    if owner.cloud.faults.boot(owner.power_control[found.number].names, {"reset_failed"}) is not None:
        raise RobotError(500, "RESET_FAILED", "Resetting failed due to an internal error")
    found.resets.append(Reset(owner.now, kind))
    found.manual_reset = kind == "man"
    await owner.press(found, kind)
    return answer({"reset": {**robot_views.identity(found), "type": kind}})


@routes.get("/wol/{server}")
async def get_wol(request: web.Request) -> web.Response:
    """Whether a packet can wake this server."""
    found = server(request)
    if not found.spec.wol:
        raise _no_wol()
    return answer({"wol": robot_views.identity(found)})


@routes.post("/wol/{server}")
async def post_wol(request: web.Request) -> web.Response:
    """Send the packet: a server that is off switches on."""
    found = server(request)
    if not found.spec.wol:
        raise _no_wol()
    await account(request).press(found, "wol")
    return answer({"wol": robot_views.identity(found)})


def _no_reset() -> RobotError:
    return RobotError(404, "RESET_NOT_AVAILABLE", "The server has no reset option")


def _no_wol() -> RobotError:
    return RobotError(404, "WOL_NOT_AVAILABLE", "The server has no Wake On LAN feature")


def boot_routes() -> web.RouteTableDef:
    """The overview, and the routes of every kind."""
    routes = web.RouteTableDef()
    routes.get("/boot/{server}")(_overview)
    for kind in KINDS:
        _add(routes, kind)
    return routes


async def _overview(request: web.Request) -> web.Response:
    owner, found = account(request), server(request)
    return answer({"boot": {kind: robot_views.boot(found, kind, owner.now) for kind in KINDS}})


def _add(routes: web.RouteTableDef, kind: str) -> None:
    path = f"/boot/{{server}}/{kind}"

    async def show(request: web.Request) -> web.Response:
        return answer({kind: robot_views.boot(_offering(request, kind), kind, account(request).now)})

    async def activate(request: web.Request) -> web.Response:
        found, fields = _offering(request, kind), await form(request)
        activation = await _activation(account(request), found, kind, fields)
        return answer({kind: robot_views.configuration(found, kind, activation, account(request).now)})

    async def withdraw(request: web.Request) -> web.Response:
        found, now = _offering(request, kind), account(request).now
        last = found.last.get(kind)
        if last is not None and last.active(now):
            last.withdrawn = True
        return answer({kind: robot_views.configuration(found, kind, None, now)})

    async def last(request: web.Request) -> web.Response:
        found = _offering(request, kind)
        if kind not in found.last:
            raise not_found("No last activation found")
        return answer({kind: robot_views.configuration(found, kind, found.last[kind], account(request).now)})

    routes.get(path)(show)
    routes.post(path)(activate)
    routes.delete(path)(withdraw)
    if kind in ("rescue", "linux"):
        routes.get(f"{path}/last")(last)


async def _activation(owner: Account, found: Dedicated, kind: str, fields: Form) -> Activation:
    """Activate; refused while any configuration is active, and when a field names what is not on offer."""
    choices = robot_views.CHOICES[kind]
    fields.require(*(name for name in (_SYSTEM[kind], "lang") if name in choices))
    system = fields.text(_SYSTEM[kind])
    invalid = [name for name, values in choices.items() if fields.text(name, str(values[0])) not in map(str, values)]
    keys = _keys(owner, fields.many("authorized_key"))
    if keys is None or (keys and system.startswith("vkvm")) or (keys and kind == "vnc"):
        invalid.append("authorized_key")
    if invalid:
        raise invalid_input(invalid=invalid)
    host_keys = await owner.host_keys.take() if kind == "rescue" else ()
    # No await from here on: of two requests at once, one finds the other's activation.
    _refuse_if_active(found, kind, owner.now)
    found.last[kind] = Activation(
        kind=kind,
        system=system,
        arch=int(fields.text("arch", str(choices["arch"][0]))),
        lang=fields.text("lang"),
        password=secrets.token_urlsafe(9),
        keys=tuple(keys or ()),
        expires=owner.now + owner.settings.rescue_lifetime,
        host_keys=host_keys,
    )
    return found.last[kind]


def _refuse_if_active(found: Dedicated, kind: str, now: float) -> None:
    active = found.activation(now)
    if active is not None and active.kind == kind:
        raise RobotError(409, "BOOT_ALREADY_ENABLED", f"The {kind} configuration is already active")
    if active is not None:
        raise RobotError(409, "BOOT_BLOCKED", f"The {active.kind} configuration is active")


def _keys(owner: Account, fingerprints: list[str]) -> list[Key] | None:
    """The registered keys of these fingerprints, or None when one is not registered."""
    if any(fingerprint not in owner.keys for fingerprint in fingerprints):
        return None
    return [owner.keys[fingerprint] for fingerprint in fingerprints]


def _offering(request: web.Request, kind: str) -> Dedicated:
    found = server(request)
    if not found.offers(kind):
        raise RobotError(404, "BOOT_NOT_AVAILABLE", f"No {kind} configuration available for this server")
    return found
