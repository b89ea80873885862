# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public SSH keys: what is one, its fingerprint, and the routes."""

from __future__ import annotations

import base64
import hashlib

from aiohttp import web

from . import schemas, views
from .api_errors import invalid_input, not_unique
from .cloud import check_name, found, refuse_if, update_named
from .http import BY_NAME_AND_AGE, answer, body, cloud, identifier, listing, select
from .resources import SshKey, now

KEY_TYPES = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
_NAME_TAKEN = "SSH key with the same name already exists"


def fingerprint(public_key: str) -> str:
    """The MD5 fingerprint of the key material, with colons; ValueError says why a key is none."""
    words = public_key.split()
    if len(words) < 2 or "\n" in public_key.strip():
        raise ValueError("public key must be one line: type, base64 data and an optional comment")
    kind, data = words[:2]
    if kind not in KEY_TYPES:
        raise ValueError(f"public key type '{kind}' is not one of {', '.join(KEY_TYPES)}")
    try:
        blob = base64.b64decode(data, validate=True)
    except ValueError as error:
        raise ValueError(f"public key data is not base64: {error}") from error
    # The data repeats the type as its first length-prefixed field; anything else is another key or damage.
    if blob[:4] != len(kind).to_bytes(4, "big") or blob[4 : 4 + len(kind)] != kind.encode():
        raise ValueError(f"public key data does not hold a key of type {kind}")
    if len(blob) <= 4 + len(kind):
        raise ValueError("public key data ends after the type")
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[position : position + 2] for position in range(0, len(digest), 2))


routes = web.RouteTableDef()


@routes.get("/ssh_keys")
async def list_keys(request: web.Request) -> web.Response:
    """All keys; filters name, fingerprint, label_selector."""
    keys = select(request, cloud(request).ssh_keys.values())
    if "fingerprint" in request.query:
        keys = [key for key in keys if key.fingerprint == request.query["fingerprint"]]
    return listing(request, "ssh_keys", keys, views.ssh_key, BY_NAME_AND_AGE)


@routes.post("/ssh_keys")
async def create_key(request: web.Request) -> web.Response:
    """Register a key; name and key material are each unique."""
    wanted = await body(request, schemas.SshKeyCreate)
    project = cloud(request)
    try:
        digest = fingerprint(wanted.public_key)
    except ValueError as error:
        raise invalid_input({"public_key": [str(error)]}) from error
    check_name(project.ssh_keys, wanted.name, _NAME_TAKEN)
    refuse_if(
        any(key.fingerprint == digest for key in project.ssh_keys.values()),
        not_unique("public_key", "SSH key with the same fingerprint already exists"),
    )
    key = SshKey(
        project.new_id("ssh_key"), wanted.name, wanted.public_key.strip(), digest, dict(wanted.labels or {}), now()
    )
    project.ssh_keys[key.id] = key
    return answer({"ssh_key": views.ssh_key(key)}, status=201)


@routes.get(r"/ssh_keys/{id:[0-9]+}")
async def get_key(request: web.Request) -> web.Response:
    return answer({"ssh_key": views.ssh_key(_key(request))})


@routes.put(r"/ssh_keys/{id:[0-9]+}")
async def update_key(request: web.Request) -> web.Response:
    key = _key(request)
    update_named(cloud(request).ssh_keys, key, await body(request, schemas.NamedUpdate), _NAME_TAKEN)
    return answer({"ssh_key": views.ssh_key(key)})


@routes.delete(r"/ssh_keys/{id:[0-9]+}")
async def delete_key(request: web.Request) -> web.Response:
    """Forget a key; servers that have it keep it."""
    del cloud(request).ssh_keys[_key(request).id]
    return web.Response(status=204)


def _key(request: web.Request) -> SshKey:
    return found("ssh key", cloud(request).ssh_keys, identifier(request))
