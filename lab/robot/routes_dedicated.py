# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of dedicated servers and their answers: /server, /boot, /reset, /wol; and of the account's SSH keys: /key."""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp import web

from lab.api import metadata_only

from .account import Account
from .model import KINDS, Activation, Dedicated, Key, Reset
from .robot_http import Form, RobotError, account, answer, form, identity, invalid_input, not_found, server

_ZONE = ZoneInfo("Europe/Berlin")

#: What can be chosen for each kind of boot configuration: field of the answer, values on offer.
CHOICES: dict[str, dict[str, list[Any]]] = {
    "rescue": {"os": ["linux", "linuxold", "vkvm"], "arch": [64, 32]},
    "linux": {"dist": ["Debian 12 base", "Ubuntu 24.04 LTS base"], "arch": [64], "lang": ["en", "de"]},
    "vnc": {"dist": ["Debian-12", "Fedora-42"], "arch": [64], "lang": ["en_US", "de_DE"]},
}


def moment(seconds: float | None) -> str | None:
    """A point in time as Robot writes it: local time of Berlin, to the second, without a zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds, _ZONE).strftime("%Y-%m-%d %H:%M:%S")


def server_item(server: Dedicated) -> dict[str, Any]:
    """A server in the list."""
    return {
        **identity(server),
        "server_name": server.name,
        "product": server.spec.product,
        "dc": server.spec.dc,
        "traffic": "unlimited",
        "status": "ready",
        "cancelled": False,
        "paid_until": "2099-12-31",
        "ip": [server.ipv4],
        "subnet": [{"ip": server.ipv6_net, "mask": "64"}],
    }


def server_details(server: Dedicated) -> dict[str, Any]:
    """A server on its own."""
    return {
        **server_item(server),
        "reset": bool(server.spec.reset),
        "rescue": server.offers("rescue"),
        "vnc": server.offers("vnc"),
        "windows": server.offers("windows"),
        "plesk": server.offers("plesk"),
        "cpanel": server.offers("cpanel"),
        "wol": server.spec.wol,
        "hot_swap": False,
        "linked_storagebox": None,
    }


def reset_item(server: Dedicated) -> dict[str, Any]:
    return {**identity(server), "type": list(server.spec.reset)}


def key_item(item: Key) -> dict[str, Any]:
    """An SSH key of the account."""
    return {**_listed_key(item), "data": item.data}


def boot_item(server: Dedicated, kind: str, now: float) -> dict[str, Any] | None:
    """One kind of boot configuration at present, or None when the server does not have it."""
    if not server.offers(kind):
        return None
    last = server.last.get(kind)
    return configuration(server, kind, last if last is not None and last.active(now) else None, now)


def configuration(server: Dedicated, kind: str, activation: Activation | None, now: float) -> dict[str, Any]:
    """An activation, or what could be chosen: the same fields hold a value, or the list of values."""
    result = identity(server)
    if activation is None:
        result |= {name: list(values) for name, values in CHOICES[kind].items()}
        result |= {"active": False, "password": None}
    else:
        chosen = {"os": activation.system, "dist": activation.system, "arch": activation.arch, "lang": activation.lang}
        result |= {name: chosen[name] for name in CHOICES[kind]}
        result |= {"active": activation.active(now), "password": activation.password}
    if kind != "vnc":
        keys = () if activation is None else activation.keys
        shown = () if activation is None else activation.shown
        result["authorized_key"] = [{"key": _listed_key(item)} for item in keys]
        result["host_key"] = [{"key": asdict(item)} for item in shown]
    if kind == "rescue":
        result["boot_time"] = None if activation is None else moment(activation.booted)
    return result


def _listed_key(item: Key) -> dict[str, Any]:
    return {
        "name": item.name,
        "fingerprint": item.fingerprint,
        "type": item.type,
        "size": item.size,
        "created_at": moment(item.created),
    }


routes = web.RouteTableDef()
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
#: The field that names the system to boot or install.
_SYSTEM = {"rescue": "os", "linux": "dist", "vnc": "dist"}


@routes.get("/server")
async def list_servers(request: web.Request) -> web.Response:
    items = [{"server": server_item(item)} for item in account(request).ordered()]
    if not items:
        raise not_found("No server found")
    return answer(items)


@routes.get("/server/{server}")
async def get_server(request: web.Request) -> web.Response:
    return answer({"server": server_details(server(request))})


@routes.post("/server/{server}")
async def rename_server(request: web.Request) -> web.Response:
    found, fields = server(request), await form(request)
    fields.require("server_name")
    if not _NAME.fullmatch(fields.text("server_name")):
        raise invalid_input(invalid=["server_name"])
    found.name = fields.text("server_name")
    return answer({"server": server_details(found)})


@routes.get("/reset")
async def list_resets(request: web.Request) -> web.Response:
    """The ways to reset, of all servers that have any."""
    items = [{"reset": reset_item(item)} for item in account(request).ordered() if item.spec.reset]
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
    return answer({"reset": {**reset_item(found), "operating_status": status}})


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
    return answer({"reset": {**identity(found), "type": kind}})


@routes.get("/wol/{server}")
async def get_wol(request: web.Request) -> web.Response:
    """Whether a packet can wake this server."""
    found = server(request)
    if not found.spec.wol:
        raise _no_wol()
    return answer({"wol": identity(found)})


@routes.post("/wol/{server}")
async def post_wol(request: web.Request) -> web.Response:
    """Send the packet: a server that is off switches on."""
    found = server(request)
    if not found.spec.wol:
        raise _no_wol()
    await account(request).press(found, "wol")
    return answer({"wol": identity(found)})


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
    return answer({"boot": {kind: boot_item(found, kind, owner.now) for kind in KINDS}})


def _add(routes: web.RouteTableDef, kind: str) -> None:
    path = f"/boot/{{server}}/{kind}"

    async def show(request: web.Request) -> web.Response:
        return answer({kind: boot_item(_offering(request, kind), kind, account(request).now)})

    async def activate(request: web.Request) -> web.Response:
        found, fields = _offering(request, kind), await form(request)
        activation = await _activation(account(request), found, kind, fields)
        return answer({kind: configuration(found, kind, activation, account(request).now)})

    async def withdraw(request: web.Request) -> web.Response:
        found, now = _offering(request, kind), account(request).now
        last = found.last.get(kind)
        if last is not None and last.active(now):
            last.withdrawn = True
        return answer({kind: configuration(found, kind, None, now)})

    async def last(request: web.Request) -> web.Response:
        found = _offering(request, kind)
        if kind not in found.last:
            raise not_found("No last activation found")
        return answer({kind: configuration(found, kind, found.last[kind], account(request).now)})

    routes.get(path)(show)
    routes.post(path)(activate)
    routes.delete(path)(withdraw)
    if kind in ("rescue", "linux"):
        routes.get(f"{path}/last")(last)


async def _activation(owner: Account, found: Dedicated, kind: str, fields: Form) -> Activation:
    """Activate; refused while any configuration is active, and when a field names what is not on offer."""
    choices = CHOICES[kind]
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
    items = [{"key": key_item(item)} for item in account(request).keys.values()]
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
    return answer({"key": key_item(key)}, status=201)


@routes.get("/key/{fingerprint}")
async def get_key(request: web.Request) -> web.Response:
    return answer({"key": key_item(_key(request))})


@routes.post("/key/{fingerprint}")
async def rename_key(request: web.Request) -> web.Response:
    key, fields = _key(request), await form(request)
    fields.require("name")
    key.name = fields.text("name")
    return answer({"key": key_item(key)})


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
