# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Public paths that can neither be listed nor guessed, and stay the same over restarts and replicas (pure)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

LONGEST = 64  # characters of a path that every BMC takes
_NAME = 26  # base32 digits: 130 bits
_SIGNATURE = 20  # base32 digits: 100 bits
_SIGNED = re.compile(r"/([0-9a-f]{1,10})\.([a-z2-7]{%d})(/[^/]+)\Z" % _SIGNATURE)


def public(secret: bytes, key: str, suffix: str) -> str:
    """The path of an image, from the server's secret and what the image is of (namespace, name, architecture …)."""
    return "/%s%s" % (_mac(secret, b"name\0" + key.encode("utf-8"), _NAME), suffix)


def sign(secret: bytes, path: str, expires: int) -> str:
    """The path with a moment (seconds since 1970) after which it opens nothing."""
    return "/%x.%s%s" % (expires, _signature(secret, path, expires), path)


def unsign(secret: bytes, path: str, now: float) -> str | None:
    """The plain path of a signed one; None when the signature is not ours or has expired."""
    match = _SIGNED.match(path)
    if not match:
        return None
    expires, signature, plain = int(match.group(1), 16), match.group(2), match.group(3)
    good = hmac.compare_digest(signature, _signature(secret, plain, expires))
    return plain if good and now < expires else None


def _signature(secret: bytes, path: str, expires: int) -> str:
    return _mac(secret, b"sign\0%d\0" % expires + path.encode("utf-8"), _SIGNATURE)


def _mac(secret: bytes, message: bytes, digits: int) -> str:
    digest = hmac.new(secret, message, hashlib.sha256).digest()
    return base64.b32encode(digest).decode("ascii").lower()[:digits]
