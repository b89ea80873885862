# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the playbooks' variables, and what is said of one that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import (
    conflicts,
    known_variables,
    leaving,
    specification,
)

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
    ours = set(specification.variables())
    assert documented - known_variables.OF_PLAYBOOKS == ours
    assert used - ours == known_variables.OF_PLAYBOOKS


def misspelt(name: str) -> str:
    return (
        f"{name} is no variable of kubenode.provision; did you mean kubenode_image_url? A variable of your own needs a "
        "name that does not begin with kubenode_"
    )


def test_a_misspelt_variable_is_refused_with_the_nearest_one():
    host = {"kubenode_image_ulr": "x", "kubenode__dir": "/", "kubenode_armed": {}, "kubenode_wipe": [], "other": 1}
    hosts = [{**host, "inventory_hostname": f"n{number}"} for number in range(1, 6)]
    (found,) = conflicts.variable_findings(hosts, "robot_image_url")
    assert found == misspelt("kubenode_image_ulr, set for n1, n2, n3 and 2 more,")
    assert known_variables.unknown(hosts) == []


def test_a_misspelt_variable_of_the_command_line_is_said_to_be_there(monkeypatch):
    monkeypatch.setattr(known_variables, "of_the_command_line", lambda: {"kubenode_image_ulr": "x"})
    hosts = [{"inventory_hostname": f"n{number}", "kubenode_image_ulr": "x"} for number in range(1, 6)]
    assert known_variables.misspelt(hosts) == [misspelt("kubenode_image_ulr, given by -e,")]


def test_a_name_that_is_far_from_all_of_ours_is_only_reported():
    hosts = [{"inventory_hostname": "a", "kubenode_zzz": 1}]
    assert known_variables.unknown(hosts) == [
        "kubenode_zzz, set for a, is no variable of kubenode.provision and does nothing"
    ]
    assert known_variables.misspelt(hosts) == []


@pytest.mark.parametrize("playbook", sorted(specification.playbooks()))
def test_every_playbook_refuses_a_misspelt_variable(playbook):
    files = [f"{playbook}.yml", "tasks/leave_check.yml", f"tasks/{playbook}_check.yml"]
    paths = [CHECKOUT / "playbooks" / file for file in files]
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
    assert f"kubenode__checked_for: {playbook}\n" in text


def test_machines_that_are_to_leave_are_refused_before_they_are_looked_for():
    hosts = [{"inventory_hostname": "n1", "kubenode_evict_froce": True}]
    assert "did you mean kubenode_evict_force?" in leaving.plan(hosts)["errors"][0]


def test_a_misspelt_variable_of_a_role_is_named_too():
    hosts = [{"inventory_hostname": "a", "base_kubernetes_versoin": "1.36.4", "base_something_of_the_users": 1}]
    assert known_variables.unknown_of_roles(hosts, ["base", "join"]) == [
        "base_kubernetes_versoin, set for a, is no variable of kubenode.provision and does nothing; "
        "base_kubernetes_version is one"
    ]
