# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/join.md names every failure code, and the plan gets every variable but the token."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import codes
from tests.unit.node_role.templating import templated

CHECKOUT = Path(__file__).resolve().parents[3]
TEXT = (CHECKOUT / "docs/join.md").read_text(encoding="utf-8")
DEFAULTS = yaml.safe_load((CHECKOUT / "roles/join/defaults/main.yml").read_text(encoding="utf-8"))
VARS = yaml.safe_load((CHECKOUT / "roles/join/vars/main.yml").read_text(encoding="utf-8"))


def test_every_code_is_documented():
    assert [code for code in codes.CODES if f"`{code}`" not in TEXT] == []


def test_the_plan_gets_every_variable_but_the_token():
    given = {**DEFAULTS, **VARS, "join_ca_file": "ca.crt", "join_max_pods": "{{ pods }}", "pods": 7}
    expected = {name.removeprefix("join_"): value for name, value in DEFAULTS.items()}
    del expected["token"]
    assert templated("{{ __join_given }}", given) == {**expected, "ca_file": "ca.crt", "max_pods": 7}
