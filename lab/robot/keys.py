# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/key: the SSH keys of the account, and what Robot says of them."""

from __future__ import annotations

import base64

from aiohttp import web

from lab.api import ssh_keys

from . import robot_views
from .forms import account, answer, form
from .model import Key
from .robot_errors import RobotError, invalid_input, not_found

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
        fingerprint = ssh_keys.fingerprint(data)
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


routes = web.RouteTableDef()


@routes.get("/key")
async def list_keys(request: web.Request) -> web.Response:
    """All keys."""
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
    """One key."""
    return answer({"key": robot_views.key(_key(request))})


@routes.post("/key/{fingerprint}")
async def rename_key(request: web.Request) -> web.Response:
    """Give a key another name."""
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
