# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A configuration against the fields its minor knows: unknown fields, and values of a wrong type (pure)."""

from __future__ import annotations

import math
import re
from typing import Any

_DURATION = re.compile(
    r"[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))*\Z"
)
_QUANTITY = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?\Z")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def unknown(value: Any, known: Any, path: str = "") -> list[str]:
    """Paths of the fields that the table does not name, such as ``authentication.x509.clientCaFile``."""
    found: list[str] = []
    if isinstance(known, list) and isinstance(value, list):
        for index, item in enumerate(value):
            found += unknown(item, known[0], "%s[%d]" % (path, index))
    elif isinstance(known, dict) and isinstance(value, dict):
        for name, item in value.items():
            inner = "%s.%s" % (path, name) if path else str(name)
            if "*" in known:
                found += unknown(item, known["*"], inner)
            elif name in known:
                found += unknown(item, known[name], inner)
            else:
                found.append(inner)
    return found


def wrong(value: Any, known: Any, path: str = "") -> list[str]:
    """One text for each value that cannot be read as what its field holds."""
    if value is None:
        return []
    if isinstance(known, list):
        if not isinstance(value, list):
            return [_text(value, path, "list")]
        return [text for index, item in enumerate(value) for text in wrong(item, known[0], "%s[%d]" % (path, index))]
    if isinstance(known, dict):
        if not isinstance(value, dict):
            return [_text(value, path, "object")]
        found = []
        for name, item in value.items():
            kind = known.get("*", known.get(name))
            if kind is not None:
                found += wrong(item, kind, "%s.%s" % (path, name) if path else str(name))
        return found
    return [] if _fits(value, known) else [_text(value, path, known)]


def _fits(value: Any, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "quantity":
        return (isinstance(value, (int, float)) and not isinstance(value, bool)) or (
            isinstance(value, str) and bool(_QUANTITY.match(value))
        )
    if kind == "duration|int" and isinstance(value, int):
        return not isinstance(value, bool)
    if not isinstance(value, str):
        return kind == "any"
    return bool(_DURATION.match(value)) if kind.startswith("duration") else True


def _text(value: Any, path: str, kind: str) -> str:
    shown = value if isinstance(value, (str, int, float)) else type(value).__name__
    return "cannot unmarshal %r into field %s of type %s" % (shown, path, kind)


def seconds(text: Any, default: float) -> float:
    """A duration in seconds."""
    if not isinstance(text, str) or not _DURATION.match(text):
        return default
    total = sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ns|us|µs|ms|s|m|h)", text.lstrip("+-"))
    )
    return -total if text.startswith("-") else total


def bytes_of(text: Any) -> int:
    """A quantity as a whole number, 0 when it is none."""
    if isinstance(text, (int, float)):
        return int(text) if -math.inf < text < math.inf else 0
    match = re.match(r"([0-9]{1,30}(?:\.[0-9]{0,30})?)([numkMGTPE]?|[KMGTPE]i)\Z", str(text or ""))
    if not match:
        return 0
    powers = "kMGTPE"
    unit = match.group(2)
    if unit.endswith("i"):
        return int(float(match.group(1)) * 1024 ** ("KMGTPE".index(unit[0]) + 1))
    return int(float(match.group(1)) * (1000 ** (powers.index(unit) + 1) if unit in powers and unit else 1))
