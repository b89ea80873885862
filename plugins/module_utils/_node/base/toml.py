# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A writer for the subset of TOML that containerd reads: tables, strings, booleans, numbers, arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f"\\\ud800-\udfff]')


def string(text):
    """A basic string. ValueError for half of a surrogate pair, which is no text."""

    def escaped(match):
        character = match.group()
        if "\ud800" <= character <= "\udfff":
            raise ValueError("TOML cannot hold the lone surrogate U+%04X" % ord(character))
        return _SHORT.get(character) or "\\u%04X" % ord(character)

    return '"%s"' % _TO_ESCAPE.sub(escaped, text)


def key(name):
    """A bare key where it can be one, else a quoted one."""
    return name if _BARE.match(name) else string(name)


def value(item):
    """A scalar, an array, or a mapping as an inline table (inside arrays only)."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(int(item))
    if isinstance(item, float):
        if not math.isfinite(item):
            raise ValueError("%r has no place in a configuration" % item)
        return repr(float(item))
    if isinstance(item, str):
        return string(str(item))
    if isinstance(item, (list, tuple)):
        return "[%s]" % ", ".join(value(part) for part in item)
    if isinstance(item, Mapping):
        return "{%s}" % ", ".join("%s = %s" % (key(name), value(part)) for name, part in item.items())
    raise ValueError(
        "%r is a %s; TOML here holds text, numbers, booleans, lists and mappings" % (item, type(item).__name__)
    )


def dumps(document):
    """The document as TOML text: scalars of a table before its tables, each in the order given; nulls are left out."""
    lines: list[str] = []
    _table(document, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n" if lines else ""


def _table(table, path, lines):
    scalars = [(name, item) for name, item in table.items() if item is not None and not isinstance(item, Mapping)]
    tables = [(name, item) for name, item in table.items() if isinstance(item, Mapping)]
    if path and (scalars or not tables):
        lines.extend(["", "%s[%s]" % ("  " * (len(path) - 1), ".".join(key(part) for part in path))])
    for name, item in scalars:
        lines.append("%s%s = %s" % ("  " * max(len(path) - 1, 0), key(name), value(item)))
    for name, item in tables:
        _table(item, (*path, name), lines)


def merged(base, over):
    """A copy of base with the mapping over laid over it: tables merge, all else replaces, a null removes."""
    result = dict(base)
    for name, item in over.items():
        if item is None:
            result.pop(name, None)
        elif isinstance(item, Mapping):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, Mapping) else {}, item)
        else:
            result[name] = item
    return result
