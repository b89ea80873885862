# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the playbooks' variables, and what is said of one that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import known_variables

CHECKOUT = Path(__file__).resolve().parents[3]
SPECS = "plugins/plugin_utils/preflight/machine_specs.py"


def named_in(pattern: str, *folders: str) -> set[str]:
    """The variables that are named in the files of these folders; those between two underscores are internal."""
    files = [
        path
        for folder in folders
        for path in [CHECKOUT / folder, *(CHECKOUT / folder).rglob("*")]
        if path.is_file() and path.suffix in (".yml", ".j2", ".md", ".py")
    ]
    names = {name for path in files for name in re.findall(pattern, path.read_text(encoding="utf-8"))}
    return {name for name in names if not name.startswith("kubenode__") and not name.endswith("_")}


def test_the_names_are_those_of_docs_and_playbooks():
    documented = named_in(r"`(?!kubenode_provision_)(kubenode_[a-z0-9_]+)", "docs", "README.md")  # no metric is one
    used = named_in(r"\b(kubenode_[a-z0-9_]+)", "playbooks", "roles", "plugins/filter", SPECS)
    assert documented == known_variables.OF_USERS
    assert used - documented == known_variables.OF_PLAYBOOKS


def test_a_misspelt_variable_is_reported_with_the_nearest_one():
    host = {"kubenode_image_ulr": "x", "kubenode__dir": "/", "kubenode_armed": {}, "kubenode_wipe": [], "other": 1}
    hosts = [{**host, "inventory_hostname": f"n{number}"} for number in range(1, 6)]
    assert known_variables.unknown(hosts) == [
        "kubenode_image_ulr, set for n1, n2, n3 and 2 more, is no variable of kubenode.provision and does nothing; "
        "kubenode_image_url is one"
    ]
    assert known_variables.unknown([{"inventory_hostname": "a", "kubenode_zzz": 1}]) == [
        "kubenode_zzz, set for a, is no variable of kubenode.provision and does nothing"
    ]


def test_a_misspelt_variable_of_a_role_is_named_too():
    hosts = [{"inventory_hostname": "a", "base_kubernetes_versoin": "1.36.4", "base_something_of_the_users": 1}]
    assert known_variables.unknown_of_roles(hosts, ["base", "join"]) == [
        "base_kubernetes_versoin, set for a, is no variable of kubenode.provision and does nothing; "
        "base_kubernetes_version is one"
    ]
