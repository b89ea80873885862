# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a role as its meta/argument_specs.yml has them: names, types, choices, defaults."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

from ..plain import own_yaml

ROLES = Path(__file__).parents[3] / "roles"

#: type, default, choices, options … of one variable
Option = dict[str, Any]


@functools.cache
def options(role: str) -> dict[str, Option]:
    """Each variable, without the role's name in front, in the order of the file."""
    text = (ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    listed: dict[str, Option] = own_yaml(text)["argument_specs"]["main"]["options"]
    return {name.removeprefix(role + "_"): option for name, option in listed.items()}


@functools.cache
def variables(*roles: str) -> dict[str, Option]:
    """Every variable of these roles by its whole name."""
    return {f"{role}_{name}": option for role in roles for name, option in options(role).items()}


@functools.cache
def versions() -> dict[str, Any]:
    """What base knows of versions (base_versions): checksums, defaults, matrix, key_fingerprints."""
    text = (ROLES / "base/vars/main/versions.yml").read_text(encoding="utf-8")
    known: dict[str, Any] = own_yaml(text)["base_versions"]
    return known


def default(option: Option) -> Any:
    """A default of one's own, which may be changed."""
    return copy.deepcopy(option.get("default"))
