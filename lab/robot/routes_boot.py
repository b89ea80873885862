# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/boot: what the next boot takes."""

from __future__ import annotations

import secrets

from aiohttp import web

from lab.robot import views
from lab.robot.account import Account
from lab.robot.errors import RobotError, invalid_input, not_found
from lab.robot.forms import Form
from lab.robot.http import account, answer, form, server
from lab.robot.model import KINDS, Activation, Dedicated, Key

#: The field that names the system to boot or install.
_SYSTEM = {"rescue": "os", "linux": "dist", "vnc": "dist"}


def boot_routes() -> web.RouteTableDef:
    """The overview, and the routes of every kind."""
    routes = web.RouteTableDef()
    routes.get("/boot/{server}")(_overview)
    for kind in KINDS:
        _add(routes, kind)
    return routes


async def _overview(request: web.Request) -> web.Response:
    owner, found = account(request), server(request)
    return answer({"boot": {kind: views.boot(found, kind, owner.now) for kind in KINDS}})


def _add(routes: web.RouteTableDef, kind: str) -> None:
    path = f"/boot/{{server}}/{kind}"

    async def show(request: web.Request) -> web.Response:
        return answer({kind: views.boot(_offering(request, kind), kind, account(request).now)})

    async def activate(request: web.Request) -> web.Response:
        found, fields = _offering(request, kind), await form(request)
        activation = await _activation(account(request), found, kind, fields)
        return answer({kind: views.configuration(found, kind, activation, account(request).now)})

    async def withdraw(request: web.Request) -> web.Response:
        found, now = _offering(request, kind), account(request).now
        last = found.last.get(kind)
        if last is not None and last.active(now):
            last.withdrawn = True
        return answer({kind: views.configuration(found, kind, None, now)})

    async def last(request: web.Request) -> web.Response:
        found = _offering(request, kind)
        if kind not in found.last:
            raise not_found("No last activation found")
        return answer({kind: views.configuration(found, kind, found.last[kind], account(request).now)})

    routes.get(path)(show)
    routes.post(path)(activate)
    routes.delete(path)(withdraw)
    if kind in ("rescue", "linux"):
        routes.get(f"{path}/last")(last)


async def _activation(owner: Account, found: Dedicated, kind: str, fields: Form) -> Activation:
    """Activate; refused while any configuration is active, and when a field names what is not on offer."""
    choices = views.CHOICES[kind]
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
