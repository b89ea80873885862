# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/join.md names every variable of the role and every failure code."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import codes
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import join_inputs

CHECKOUT = Path(__file__).resolve().parents[3]
TEXT = (CHECKOUT / "docs/join.md").read_text(encoding="utf-8")
SPECS = yaml.safe_load((CHECKOUT / "roles/join/meta/argument_specs.yml").read_text(encoding="utf-8"))
OPTIONS = SPECS["argument_specs"]["main"]["options"]


def test_every_variable_is_documented():
    assert [name for name in OPTIONS if "| `%s` |" % name not in TEXT] == []


def test_every_code_is_documented():
    assert [code for code in codes.CODES if "`%s`" % code not in TEXT] == []


def test_the_role_has_the_variables_that_are_checked():
    checked = {"join_" + name for name in join_inputs._VARIABLES}
    assert checked == set(OPTIONS) - {"join_token"}


def test_defaults_are_those_of_the_check():
    for name, (_kinds, default) in join_inputs._VARIABLES.items():
        assert OPTIONS["join_" + name]["default"] == default, name
