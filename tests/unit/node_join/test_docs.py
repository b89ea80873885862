# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/join.md names every variable of the role and every failure code."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import codes
from tests.unit.node_role.templating import templated

CHECKOUT = Path(__file__).resolve().parents[3]
TEXT = (CHECKOUT / "docs/join.md").read_text(encoding="utf-8")
SPECS = yaml.safe_load((CHECKOUT / "roles/join/meta/argument_specs.yml").read_text(encoding="utf-8"))
OPTIONS = SPECS["argument_specs"]["main"]["options"]
DEFAULTS = yaml.safe_load((CHECKOUT / "roles/join/defaults/main.yml").read_text(encoding="utf-8"))
VARS = yaml.safe_load((CHECKOUT / "roles/join/vars/main.yml").read_text(encoding="utf-8"))


def test_every_variable_is_documented():
    assert [name for name in OPTIONS if "| `%s` |" % name not in TEXT] == []


def test_every_code_is_documented():
    assert [code for code in codes.CODES if "`%s`" % code not in TEXT] == []


def test_the_defaults_are_those_of_the_argument_specs():
    assert {name: option["default"] for name, option in OPTIONS.items()} == DEFAULTS


def test_the_plan_gets_every_variable_but_the_token(tmp_path):
    (tmp_path / "ca.crt").write_text("a CA", encoding="utf-8")
    given = {**DEFAULTS, **VARS, "join_ca_file": str(tmp_path / "ca.crt"), "join_max_pods": "{{ pods }}", "pods": 7}
    expected = {name.removeprefix("join_"): value for name, value in DEFAULTS.items()}
    del expected["token"], expected["ca_file"]
    assert templated("{{ __join_given }}", given) == {**expected, "ca_cert": "a CA", "max_pods": 7}
