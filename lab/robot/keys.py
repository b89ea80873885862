# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH keys of an account: what is one, and what Robot says of it (pure)."""

from __future__ import annotations

import base64

from lab.api import keys
from lab.robot.errors import invalid_input
from lab.robot.model import Key

_SIZES = {
    "ssh-ed25519": ("ED25519", 256),
    "sk-ssh-ed25519@openssh.com": ("ED25519-SK", 256),
    "ecdsa-sha2-nistp256": ("ECDSA", 256),
    "ecdsa-sha2-nistp384": ("ECDSA", 384),
    "ecdsa-sha2-nistp521": ("ECDSA", 521),
    "sk-ecdsa-sha2-nistp256@openssh.com": ("ECDSA-SK", 256),
}


def parse(name: str, data: str, created: float) -> Key:
    """A key from its OpenSSH line, kept without comment; RobotError 400 when it is none."""
    try:
        fingerprint = keys.fingerprint(data)
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
