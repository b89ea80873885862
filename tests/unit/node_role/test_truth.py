# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches of the roles are read as the command line gives them: `-e name=false` is a text, which is no condition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"
SPECS = {path.parents[1].name: path for path in ROLES.glob("*/meta/argument_specs.yml")}


def switches(role: str) -> list[str]:
    """The variables of a role that are true or false."""
    options = yaml.safe_load(SPECS[role].read_text(encoding="utf-8"))["argument_specs"]["main"]["options"]
    return [name for name, option in options.items() if option["type"] == "bool"]


def bare(name: str, text: str) -> list[str]:
    """The lines that use a switch otherwise than as a whole value, which a filter or module reads, or by `bool`."""
    found = []
    for line in text.splitlines():
        if not re.search(rf"\b{name}\b", line) or line.strip() == f"- {name}" or line.lstrip().startswith("#"):
            continue
        left = re.sub(rf"\b{name} *\| *bool\b|^ *[a-z0-9_]+: \"{{{{ {name} }}}}\"$", "", line)
        if re.search(rf"\b{name}\b", left):
            found.append(line.strip())
    return found


@pytest.mark.parametrize("role", sorted(SPECS))
def test_no_switch_is_a_bare_condition(role):
    files = [path for folder in ("tasks", "vars") for path in (ROLES / role / folder).rglob("*.yml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert [line for name in switches(role) for line in bare(name, text)] == []


def test_what_is_bare():
    assert bare("x_on", "when: x_on or y") == ["when: x_on or y"]
    assert bare("x_on", 'a: "{{ x_on }}"\n  when: x_on | bool\n# x_on\n- x_on') == []
