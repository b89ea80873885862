# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values and documents as other programs read them: systemd, apt, TOML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import has_control


def refuse_control(text: str, what: str) -> str:
    """The text itself; ValueError when it has a line break or another control character, which no quoting carries."""
    if has_control(text):
        raise ValueError(f"{what} has a line break or another control character; remove it")
    return text


def systemd_environment(name: str, value: str) -> str:
    """One Environment= line of a unit: specifiers doubled, quotes and backslashes escaped."""
    text = refuse_control(value, name).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'Environment="{name}={text}"'


def systemd_word(value: str) -> str:
    """One argument of an ExecStart= line."""
    text = refuse_control(value, "an argument").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text.replace("%", "%%").replace("$", "$$")}"'


def apt_value(value: str) -> str:
    """A quoted value of an apt.conf file. Such a file cannot carry a double quote, so that one is percent-encoded."""
    return '"{}"'.format(refuse_control(value, "an apt option").replace('"', "%22"))


_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f"\\\ud800-\udfff]')


def toml_string(text: str) -> str:
    """A basic string. ValueError for half of a surrogate pair, which is no text."""

    def escaped(match: re.Match[str]) -> str:
        character = match.group()
        if "\ud800" <= character <= "\udfff":
            raise ValueError(f"TOML cannot hold the lone surrogate U+{ord(character):04X}")
        return _SHORT.get(character) or f"\\u{ord(character):04X}"

    return f'"{_TO_ESCAPE.sub(escaped, text)}"'


def toml_key(name: str) -> str:
    """A bare key where it can be one, else a quoted one."""
    return name if _BARE.match(name) else toml_string(name)


def toml_value(item: Any) -> str:
    """A scalar, an array, or a mapping as an inline table (inside arrays only)."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(int(item))
    if isinstance(item, float):
        if not math.isfinite(item):
            raise ValueError(f"{item!r} has no place in a configuration")
        return repr(float(item))
    if isinstance(item, str):
        return toml_string(str(item))
    if isinstance(item, (list, tuple)):
        return f"[{', '.join(toml_value(part) for part in item)}]"
    if isinstance(item, Mapping):
        return "{{{}}}".format(", ".join(f"{toml_key(name)} = {toml_value(part)}" for name, part in item.items()))
    raise ValueError(
        f"{item!r} is a {type(item).__name__}; TOML here holds text, numbers, booleans, lists and mappings"
    )


def toml_document(document: Mapping[str, Any]) -> str:
    """The document as TOML text: scalars of a table before its tables, each in the order given; nulls are left out."""
    lines: list[str] = []
    _table(document, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n" if lines else ""


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    scalars = [(name, item) for name, item in table.items() if item is not None and not isinstance(item, Mapping)]
    tables = [(name, item) for name, item in table.items() if isinstance(item, Mapping)]
    if path and (scalars or not tables):
        lines.extend(["", f"{'  ' * (len(path) - 1)}[{'.'.join(toml_key(part) for part in path)}]"])
    for name, item in scalars:
        lines.append(f"{'  ' * max(len(path) - 1, 0)}{toml_key(name)} = {toml_value(item)}")
    for name, item in tables:
        _table(item, (*path, name), lines)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
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
