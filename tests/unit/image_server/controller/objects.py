# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects as an API server has them, and what does to them what the controller would."""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server.daemon.reconcile import FINALIZER, Secret

#: baremetal-operator's, of commit 02aa5059e3482f9dc3b5115c3a45cec4b000ae16, unmodified
CRD = Path(__file__).parent / "metal3.io_preprovisioningimages.yaml"
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


def wrong(value: Any, schema: Mapping[str, Any], place: str = "") -> list[str]:
    """What an API server would refuse or drop of a value, by the part of OpenAPI's schemas that the CRD uses."""
    kinds = {"object": Mapping, "array": list, "string": str, "integer": int}
    unknown = set(schema) - {"type", "properties", "required", "items", "enum", "pattern", "minLength", "maxLength",
                             "minimum", "format", "description", "x-kubernetes-list-map-keys",
                             "x-kubernetes-list-type"}  # fmt: skip
    found = [f"{place}: the schema's {name} is not judged here" for name in sorted(unknown)]
    if not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool):
        return [*found, f"{place}: {value!r} is no {schema['type']}"]
    if isinstance(value, Mapping) and "properties" in schema:
        fields = schema["properties"]
        found += [f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        found += [f"{place}.{name} is unknown" for name in value if name not in fields]
        for name in set(value) & set(fields):
            found += wrong(value[name], fields[name], f"{place}.{name}")
    if isinstance(value, list):
        for number, one in enumerate(value):
            found += wrong(one, schema["items"], f"{place}[{number}]")
        keys = schema.get("x-kubernetes-list-map-keys", ())
        names = [tuple(one.get(key) for key in keys) for one in value if keys]
        found += [f"{place} has an entry twice"] if len(set(names)) < len(names) else []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is not one of {schema['enum']}")
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 20):
            found.append(f"{place}: {len(value)} characters")
        moment = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z\Z" if schema.get("format") == "date-time" else ""
        for pattern in (schema.get("pattern", ""), moment):
            if not re.match(pattern, value):
                found.append(f"{place}: {value!r} does not match {pattern}")
    elif isinstance(value, int) and value < schema.get("minimum", value):
        found.append(f"{place}: {value} is too small")
    return found


def schema() -> Mapping[str, Any]:
    """The schema of the only version of the CRD."""
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]
