# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python source of the tables: what all minors share once, and what each has for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Table = tuple[dict[str, str], dict[str, Any]]
_WIDTH = 118
_IDENTIFIER = "SPDX-License" + "-Identifier"  # in one piece it would be taken for this file's own
_HEAD = '''# Copyright (c) 2026 kubenode.provision authors
# {identifier}: BSD-2-Clause
"""Flags and KubeletConfiguration fields that each kubelet minor knows; made by ``python -m dev.kubelet_api``.

Types: ``bool int float string duration quantity time``, ``duration|int``, ``[T]`` a list, ``{{"*": T}}`` a map with any
keys, ``{{name: T}}`` a struct. What is not named here, the minor does not know.

{sources}
"""

from __future__ import annotations

from typing import Any

'''
_TAIL = """

def _joined(common: dict[str, Any], own: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {minor: dict(common, **only) for minor, only in own.items()}


#: minor → flag without dashes → "current" or "deprecated"
FLAGS = _joined(_FLAGS, _FLAGS_OF)
#: minor → field → type
FIELDS = _joined(_FIELDS, _FIELDS_OF)
"""


def render(tables: Mapping[str, Table], sources: Mapping[str, str]) -> str:
    """The module's text; ``sources`` says of each minor where its table comes from."""
    minors = sorted(tables, key=lambda minor: [int(part) for part in minor.split(".")])
    lines = [text for minor in minors for text in _wrapped("%s: %s" % (minor, sources[minor]))]
    parts = [_HEAD.format(identifier=_IDENTIFIER, sources="\n".join(lines))]
    for name, place in (("FLAGS", 0), ("FIELDS", 1)):
        all_of = {minor: tables[minor][place] for minor in minors}
        common = {
            key: value
            for key, value in all_of[minors[0]].items()
            if all(key in known and known[key] == value for known in all_of.values())
        }
        own = {
            minor: {key: value for key, value in known.items() if key not in common} for minor, known in all_of.items()
        }
        parts.append("_%s = %s\n\n" % (name, _value(common)))
        parts.append("_%s_OF = %s\n%s" % (name, _value(own), "\n" if place == 0 else ""))
    return "".join(parts) + _TAIL


def _wrapped(text: str) -> list[str]:
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > _WIDTH:
            lines.append("   ")
        lines[-1] = (lines[-1] + " " + word) if lines[-1] else word
    return lines


def _value(value: Any, indent: int = 0) -> str:
    """A literal as ruff formats it: on one line where it fits, else one entry a line."""
    flat = _flat(value)
    if not isinstance(value, (dict, list)) or (indent and len(flat) + indent + 40 < _WIDTH) or not value:
        return flat
    pad = " " * (indent + 4)
    if isinstance(value, list):
        rows = [pad + _value(item, indent + 4) + ",\n" for item in value]
        return "[\n" + "".join(rows) + " " * indent + "]"
    rows = ["%s%s: %s,\n" % (pad, _flat(key), _value(value[key], indent + 4)) for key in sorted(value)]
    return "{\n" + "".join(rows) + " " * indent + "}"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join("%s: %s" % (_flat(key), _flat(value[key])) for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flat(item) for item in value) + "]"
    return '"%s"' % value
