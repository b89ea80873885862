# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of dedicated servers: /server, /boot, /reset, /wol; and of the SSH keys of the account: /key."""

from __future__ import annotations

import base64
import re
import secrets

from aiohttp import web

from lab.api import metadata_only

from . import robot_views
from .account import Account
from .model import KINDS, Activation, Dedicated, Key, Reset
from .robot_http import Form, RobotError, account, answer, form, invalid_input, not_found, server

routes = web.RouteTableDef()
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
#: The field that names the system to boot or install.
_SYSTEM = {"rescue": "os", "linux": "dist", "vnc": "dist"}


@routes.get("/server")
async def list_servers(request: web.Request) -> web.Response:
    items = [{"server": robot_views.server_item(item)} for item in account(request).ordered()]
    if not items:
        raise not_found("No server found")
    return answer(items)


@routes.get("/server/{server}")
async def get_server(request: web.Request) -> web.Response:
    return answer({"server": robot_views.server_details(server(request))})


@routes.post("/server/{server}")
async def rename_server(request: web.Request) -> web.Response:
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


_SIZES = {
    "ssh-ed25519": ("ED25519", 256),
    "sk-ssh-ed25519@openssh.com": ("ED25519-SK", 256),
    "ecdsa-sha2-nistp256": ("ECDSA", 256),
    "ecdsa-sha2-nistp384": ("ECDSA", 384),
    "ecdsa-sha2-nistp521": ("ECDSA", 521),
    "sk-ecdsa-sha2-nistp256@openssh.com": ("ECDSA-SK", 256),
}


def parse_key(name: str, data: str, created: float) -> Key:
    """A key from its OpenSSH line, kept without comment; RobotError 400 when it is none."""
    try:
        fingerprint = metadata_only.fingerprint(data)
        kind, blob = data.split()[:2]
        described = ("RSA", _modulus_bits(base64.b64decode(blob))) if kind == "ssh-rsa" else _SIZES[kind]
    except ValueError as error:
        raise invalid_input(invalid=["data"]) from error
    return Key(name, fingerprint, *described, data=f"{kind} {blob}", created=created)


def normal_fingerprint(text: str) -> str:
    """A fingerprint as it is kept: lower case, with colons."""
    digits = text.lower().replace(":", "")
    return ":".join(digits[position : position + 2] for position in range(0, len(digits), 2))


def _modulus_bits(blob: bytes) -> int:
    """The size of an RSA key: its third length-prefixed field is the modulus."""
    position = 0
    for _dummy in range(2):
        position += 4 + int.from_bytes(blob[position : position + 4], "big")
    length = int.from_bytes(blob[position : position + 4], "big")
    modulus = blob[position + 4 : position + 4 + length]
    if not modulus or len(modulus) != length:
        raise ValueError("public key data ends within the modulus")
    return int.from_bytes(modulus, "big").bit_length()


@routes.get("/key")
async def list_keys(request: web.Request) -> web.Response:
    items = [{"key": robot_views.key(item)} for item in account(request).keys.values()]
    if not items:
        raise not_found("No keys found")
    return answer(items)


@routes.post("/key")
async def create_key(request: web.Request) -> web.Response:
    """Register a key; one key material is registered once, under any name."""
    owner, fields = account(request), await form(request)
    fields.require("name", "data")
    key = parse_key(fields.text("name"), fields.text("data"), owner.now)
    if key.fingerprint in owner.keys:
        raise RobotError(409, "KEY_ALREADY_EXISTS", "The key already exists")
    owner.keys[key.fingerprint] = key
    return answer({"key": robot_views.key(key)}, status=201)


@routes.get("/key/{fingerprint}")
async def get_key(request: web.Request) -> web.Response:
    return answer({"key": robot_views.key(_key(request))})


@routes.post("/key/{fingerprint}")
async def rename_key(request: web.Request) -> web.Response:
    key, fields = _key(request), await form(request)
    fields.require("name")
    key.name = fields.text("name")
    return answer({"key": robot_views.key(key)})


@routes.delete("/key/{fingerprint}")
async def delete_key(request: web.Request) -> web.Response:
    """Remove a key; a rescue that is armed with it keeps it."""
    del account(request).keys[_key(request).fingerprint]
    return web.Response()


def _key(request: web.Request) -> Key:
    key = account(request).keys.get(normal_fingerprint(request.match_info["fingerprint"]))
    if key is None:
        raise not_found("Key not found")
    return key
