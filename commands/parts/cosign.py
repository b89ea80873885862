# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verifies the signature that cosign made for an image with a key pair; openssl does the arithmetic."""

from __future__ import annotations

import base64
import contextlib
import re
import tempfile
import textwrap
from pathlib import Path

from commands.parts.errors import HttpStatus, Refused
from commands.parts.registry import Descriptor, Registry, as_object
from commands.parts.tools import run

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"


def check_signature(registry: Registry, digest: str, key: str) -> None:
    """Refuse an image whose digest the holder of the key has not signed; the key is the base64 of a cosign.pub."""
    pem = public_key(key)
    tag = digest.replace(":", "-") + ".sig"
    try:
        found, _digest = registry.manifest(tag)
    except HttpStatus as error:
        if error.status != 404:
            raise
        raise Refused("image: %s is not signed (no %s beside it)" % (registry.url.shown, tag)) from None
    layers = found.get("layers")
    for layer in map(Descriptor, layers if isinstance(layers, list) else []):
        if layer.media_type == PAYLOAD and signed(registry, layer, digest, pem):
            registry.say("image: %s is signed with the given key" % digest)
            return
    raise Refused("image: %s has no signature that the key in cosign-key= verifies" % registry.url.shown)


def public_key(key: str) -> str:
    """Return the PEM form of the key in the image URL, where + may have become a space."""
    text = key.replace(" ", "+")
    if not re.fullmatch("[A-Za-z0-9+/]{40,2000}={0,2}", text):
        raise Refused("image URL: cosign-key= is not the base64 lines of a cosign.pub")
    return "\n".join(["-----BEGIN PUBLIC KEY-----", *textwrap.wrap(text, 64), "-----END PUBLIC KEY-----", ""])


def signed(registry: Registry, layer: Descriptor, digest: str, pem: str) -> bool:
    """Whether this is a signature by the key, and of this digest."""
    payload = registry.small_blob(layer, "signature")
    critical = as_object(payload, "signature").get("critical")
    if not isinstance(critical, dict) or critical.get("type") != "cosign container image signature":
        return False
    image = critical.get("image")
    if not isinstance(image, dict) or image.get("docker-manifest-digest") != digest:
        return False
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
        names = [Path(folder) / name for name in ("key", "signature", "payload")]
        signature = base64.b64decode(str(layer.annotations.get(SIGNATURE, "")), validate=True)
        for path, data in zip(names, (pem.encode(), signature, payload)):
            path.write_bytes(data)
        verified = run(
            "openssl", "dgst", "-sha256", "-verify", str(names[0]), "-signature", str(names[1]), str(names[2]),
            accept=(0, 1),
        )  # fmt: skip
        return verified.strip() == "Verified OK"
    return False
