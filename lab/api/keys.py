# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public SSH keys: what is one, and its fingerprint (pure)."""

from __future__ import annotations

import base64
import hashlib

TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def fingerprint(public_key: str) -> str:
    """The MD5 fingerprint of the key material, with colons; ValueError says why a key is none."""
    words = public_key.split()
    if len(words) < 2 or "\n" in public_key.strip():
        raise ValueError("public key must be one line: type, base64 data and an optional comment")
    kind, data = words[:2]
    if kind not in TYPES:
        raise ValueError(f"public key type '{kind}' is not one of {', '.join(TYPES)}")
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
