# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects as an API server has them, and what does to them what the controller would."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.controller.decide import (
    FINALIZER,
    Secret,
)

NOW = 1_800_000_000.0
THEN = "2027-01-15T08:00:00Z"  # NOW


def image(**spec: Any) -> dict[str, Any]:
    """An object that has our finalizer; ``spec`` over the usual one, None leaves a field out."""
    wanted = {"architecture": "x86_64", "acceptFormats": ["iso", "initrd"], "networkDataName": "net", **spec}
    return {
        "metadata": {
            "namespace": "metal",
            "name": "host-1",
            "uid": "0b5c",
            "generation": 1,
            "resourceVersion": "1",
            "finalizers": [FINALIZER],
        },
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def with_metadata(image: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """The same with other metadata."""
    return {**image, "metadata": {**image["metadata"], **metadata}}


def with_status(image: Mapping[str, Any], status: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same with another status."""
    return {**image, "status": copy.deepcopy(dict(status or {}))}


def secret(version: str = "7", text: str = "interfaces: []\n", name: str = "net") -> Secret:
    """One with network data."""
    return Secret(name, version, {"nmstate": base64.b64encode(text.encode()).decode()})


def conditions(status: Mapping[str, Any] | None) -> dict[str, tuple[str, str, str]]:
    """Type → status, reason, message."""
    found = (status or {}).get("conditions", [])
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """What a JSON merge patch (RFC 7396) makes of an object."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            before = new.get(key)
            new[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            new[key] = value
    return new
