# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are written from templates: roles/ROLE/templates, before which the user's own folders are searched.

A template sees the role's variables by their names (checked and complete), the facts of the machine as ``node``, and
what the plan gives it besides. The filters ``to_json``, ``toml`` and ``systemd_word`` write a value for such a file.
``{% extends "base/templates/kubelet.service.j2" %}`` and the like mean the role's own template.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import has_control

from ..preflight import controller_paths
from ..role_specs import ROLES
from ..shown_warnings import warn

_ROLES = ("base", "join")


class TemplateFailed(ValueError):
    """A template cannot be rendered; the text names the variable, the template and why."""


def folders(role: str, given: Iterable[str], inventory_dir: str | None, search: Iterable[str]) -> list[str]:
    """The folders of ``ROLE_template_path``, absolute; raise :class:`TemplateFailed` for one that is not there."""
    found = []
    for path in given:
        try:
            found.append(controller_paths.find(path, inventory_dir, search))
        except controller_paths.NotThere as error:
            raise TemplateFailed(f"{role}_template_path: {error}") from error
        if not os.path.isdir(found[-1]):
            raise TemplateFailed(f"{role}_template_path: {found[-1]} is no folder; give folders that hold templates")
        for text in _unused(found[-1]):
            warn(f"{role}_template_path: {text}")
    return found


def _unused(folder: str) -> list[str]:
    """A sentence for each template in a folder that no role has and no other one there names."""
    ours = sorted(file.name for role in _ROLES for file in (ROLES / role / "templates").iterdir())
    texts = {file.name: file.read_bytes() for file in Path(folder).glob("*.j2") if file.is_file()}
    found = []
    for name in sorted(set(texts).difference(ours)):
        if not any(os.fsencode(name) in text for other, text in texts.items() if other != name):
            near = difflib.get_close_matches(name, ours, 1)
            hint = f"did you mean {near[0]}?" if near else f"the roles have {', '.join(ours)}"
            found.append(f"{os.path.join(folder, name)} is never used, as no role has a template of that name; {hint}")
    return found


def render(role: str, template: str, inputs: Mapping[str, Any], /, **variables: Any) -> str:
    """The text of a template; raise :class:`TemplateFailed` for one that cannot be rendered.

    ``inputs``: the role's variables without ``ROLE_``, with ``template_path``.
    """
    given = {f"{role}_{variable}": value for variable, value in inputs.items()}
    try:
        return _environment(role, tuple(inputs["template_path"])).get_template(template).render(given, **variables)
    except (
        jinja2.TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise TemplateFailed(f"{role}_template_path: {template}{line}: {error or type(error).__name__}") from error


@functools.cache
def _environment(role: str, given: tuple[str, ...]) -> jinja2.Environment:
    """As Ansible's own templates are read: the line end after a block goes, what is not defined is an error."""
    searched = [*given, str(ROLES / role / "templates"), str(ROLES)]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(searched),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    to_json = functools.partial(json.dumps, sort_keys=True)
    environment.filters.update(to_json=to_json, toml=toml_value, systemd_word=systemd_word)
    return environment


# --- values and documents as other programs read them: systemd, apt, TOML


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
