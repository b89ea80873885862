# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of a configuration type: a nested dictionary of JSON names and types, from Go struct types and their tags.

Types are written so: ``bool int float string duration quantity time any``, ``duration|int``, ``[T]`` a list,
``{"*": T}`` a map with any keys, ``{name: T}`` a struct.
"""

from __future__ import annotations

import re
from typing import Any

from dev.kubelet_api.gosource import GoFile, Missing, Sources, closing

KUBELET_CONFIG = "k8s.io/kubelet/config/v1beta1"
TYPE = "KubeletConfiguration"

_PLAIN = {"bool": "bool", "string": "string", "float32": "float", "float64": "float"}
_PLAIN.update({"%sint%s" % (sign, size): "int" for sign in ("", "u") for size in ("", 8, 16, 32, 64)})
#: types that read JSON by their own code
_CUSTOM: dict[str, Any] = {
    "k8s.io/apimachinery/pkg/apis/meta/v1.Duration": "duration",
    "k8s.io/apimachinery/pkg/apis/meta/v1.Time": "time",
    "k8s.io/apimachinery/pkg/apis/meta/v1.TypeMeta": {"apiVersion": "string", "kind": "string"},
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "quantity",
    "k8s.io/apimachinery/pkg/api/resource.QuantityValue": "quantity",
    "k8s.io/component-base/logs/api/v1.TimeOrMetaDuration": "duration|int",
    "time.Duration": "int",
    "k8s.io/api/core/v1.ResourceList": {"*": "quantity"},
}
_FIELD = re.compile(r"^\s*(?:(\w+)[ \t]+)?([\w.*\[\]]+|map\[.*)[ \t]*`([^`]*)`\s*\Z")
_TAG = re.compile(r'json:"([^"]*)"')


def fields(sources: Sources, path: str = KUBELET_CONFIG, name: str = TYPE) -> dict[str, Any]:
    """The nested fields of a struct type; raises :class:`Missing`."""
    found = _named(sources, path, name)
    if not isinstance(found, dict):
        raise Missing("%s.%s is no struct" % (path, name))
    return found


def _named(sources: Sources, path: str, name: str) -> Any:
    custom = _CUSTOM.get("%s.%s" % (path, name))
    if custom is not None:
        return custom
    for file in sources.package(path).files:
        declared = re.search(r"^type\s+%s\s+(?:=\s*)?(.+)$" % re.escape(name), file.text, re.M)
        if declared is None:
            continue
        if not declared.group(1).startswith("struct"):
            return _type(sources, path, file, declared.group(1).strip())
        start = file.text.index("{", declared.start(1))
        return _struct(sources, path, file, file.text[start + 1 : closing(file.text, start)])
    raise Missing("no type %s in %s" % (name, path))


def _struct(sources: Sources, path: str, file: GoFile, body: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in body.splitlines():
        match = _FIELD.match(line)
        if match is None:
            continue
        name, kind, tags = match.groups()
        tag = _TAG.search(tags)
        json_name = tag.group(1).split(",")[0] if tag else ""
        if json_name == "-":
            continue
        if name is None and not json_name:  # embedded: its fields are ours
            found.update(_type(sources, path, file, kind))
        else:
            found[json_name or name] = _type(sources, path, file, kind)
    return found


def _type(sources: Sources, path: str, file: GoFile, kind: str) -> Any:
    kind = kind.lstrip("*")
    if kind.startswith("[]"):
        return [_type(sources, path, file, kind[2:])]
    if kind.startswith("map["):
        return {"*": _type(sources, path, file, kind[closing(kind, 3) + 1 :])}
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in ("interface{}", "any"):
        return "any"
    if "." in kind:
        alias, name = kind.split(".", 1)
        return _named(sources, file.imports.get(alias, alias), name)
    return _named(sources, path, kind)
