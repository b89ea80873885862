# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What files of this collection say: its version, the versions that base knows, and the variables of its roles.

The variables, with types, choices and defaults, are those of meta/argument_specs.yml. Their values come from Ansible
with its tags, which ``plain`` takes away.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import json_value

_COLLECTION = Path(__file__).parents[2]
ROLES = _COLLECTION / "roles"
_FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: type, default, choices, options … of one variable
Option = dict[str, Any]


@functools.cache
def options(role: str) -> dict[str, Option]:
    """Each variable, without the role's name in front, in the order of the file."""
    listed: dict[str, Option] = _yaml(ROLES / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return {name.removeprefix(role + "_"): option for name, option in listed.items()}


@functools.cache
def variables(*roles: str) -> dict[str, Option]:
    """Every variable of these roles by its whole name."""
    return {f"{role}_{name}": option for role in roles for name, option in options(role).items()}


@functools.cache
def versions() -> dict[str, Any]:
    """What base knows of versions (base_versions): checksums, defaults, matrix, key_fingerprints."""
    known: dict[str, Any] = _yaml(ROLES / "base/vars/main/versions.yml")["base_versions"]
    return known


def default(option: Option) -> Any:
    """A default of one's own, which may be changed."""
    return copy.deepcopy(option.get("default"))


@functools.cache
def collection_version() -> str:
    """The version of this collection: a built one has a manifest, a checkout has galaxy.yml; empty without both."""
    manifest, source = _COLLECTION / "MANIFEST.json", _COLLECTION / "galaxy.yml"
    if manifest.exists():
        return str(json_value(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    found = re.search(r"^version: *(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _yaml(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), _FAST_LOADER)


def plain(value: Any) -> Any:
    """Without Ansible's tags and lazy containers, which YAML and the checks do not know."""
    if isinstance(value, Mapping):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return _text(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


def _text(value: str) -> str:
    # a text of a result is, before ansible-core 2.19, also after str() one of Ansible's
    return str.__str__(value)


def yaml_value(text: str) -> Any:
    """What a YAML text says; ValueError, and nothing else, for a text that is none."""
    try:
        # libyaml's loader ends the process when a text is nested too deeply
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
