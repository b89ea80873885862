# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Bootstrap tokens (pure).

https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#bootstrap-token-secret-format
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterable
from typing import Any

from ..._common.text import to_whole_seconds

NAMESPACE = "kube-system"
_TYPE = "bootstrap.kubernetes.io/token"
_ALPHABET = string.ascii_lowercase + string.digits
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\Z")
_TTL = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s?)?\Z")
_USAGES = ("authentication", "signing")
_LONGEST_TTL = 24 * 3600


class InvalidToken(ValueError):
    """What was asked for is no token; the text names the field and the fix."""


def new_token() -> tuple[str, str]:
    """A new (id, secret)."""
    chance = random.SystemRandom()
    token_id, token_secret = ("".join(chance.choice(_ALPHABET) for dummy in range(length)) for length in (6, 16))
    return token_id, token_secret


def ttl_seconds(text: Any) -> int:
    """Seconds of 15m, 1h30m, 900 and the like, up to a day."""
    found = _TTL.match(str(text).strip())
    if not found or not any(found.groups()):
        raise InvalidToken(f"ttl: {text!r} is no duration; write 15m, 1h30m or seconds")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if not 60 <= total <= _LONGEST_TTL:
        raise InvalidToken(f"ttl: {text!r} must be from 1m to 24h")
    return total


def check_groups(groups: Iterable[str]) -> None:
    """Raise :class:`InvalidToken` for a group that a bootstrap token cannot have."""
    for group in groups:
        if not _GROUP.match(group):
            raise InvalidToken(f"groups: {group!r} must be system:bootstrappers:NAME in lower-case letters and digits")


def token_secret(
    token_id: str,
    token_secret: str,
    now: float,
    ttl: float,
    groups: Iterable[str],
    usages: Iterable[str],
    description: str,
) -> dict[str, Any]:
    """The Secret of a token, as a dictionary; ``now`` and ``ttl`` in seconds."""
    check_groups(groups)
    for usage in usages:
        if usage not in _USAGES:
            raise InvalidToken(f"usages: {usage!r} must be one of {', '.join(_USAGES)}")
    data = {
        "token-id": token_id,
        "token-secret": token_secret,
        "expiration": to_whole_seconds(now + ttl),
        "description": description,
    }
    data.update(("usage-bootstrap-" + usage, "true") for usage in usages)
    if groups:
        data["auth-extra-groups"] = ",".join(groups)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": _TYPE,
        "metadata": {"name": secret_name(token_id), "namespace": NAMESPACE},
        "stringData": data,
    }


def secret_name(token_id: str) -> str:
    if not re.match(r"[a-z0-9]{6}\Z", token_id):
        raise InvalidToken(f"token_id: {token_id!r} must be six lower-case letters and digits")
    return "bootstrap-token-" + token_id
