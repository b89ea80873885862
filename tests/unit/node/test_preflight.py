# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of one look at a machine: all findings together, without anything that may be secret."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_inputs, downloads, packages
from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.node_check import preflight
from tests.unit.node.facts import NAMES, READ_AT, given, node


def checked(facts, steps=None, **variables):
    taken = given(**variables)
    return preflight(facts, taken, base_inputs.managed(taken) if steps is None else steps, READ_AT, READ_AT)


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_machine_lacks_all_that_the_plans_name(name):
    found = checked(node(name))
    assert found["refusals"] == []
    assert found["packages"] == packages.packages(node(name), given())["missing"]
    assert found["artifacts"] == [one["name"] for one in downloads.missing(node(name), given())]
    assert {"runc", "cni-plugins", "kubelet"} <= set(found["artifacts"])


def test_a_refused_machine_gets_no_plan():
    found = checked(node("debian-13", arch="riscv64"))
    assert found["refusals"]
    assert found["packages"] == found["artifacts"] == []


@pytest.mark.parametrize(
    ("steps", "programs"),
    [([], []), (["swap"], []), (["cni"], ["cni-plugins"]), (["kubelet"], ["kubelet"])],
)
def test_only_the_steps_of_the_run_fetch(steps, programs):
    assert checked(node("debian-13"), steps)["artifacts"] == programs


def test_unmanaged_packages_are_not_missed():
    assert checked(node("debian-13"), manage_packages=False)["packages"] == []


def test_no_address_and_no_credential_is_kept():
    secret = "s3cr3t"
    found = checked(
        node("debian-13"), mirror=f"https://user:{secret}@mirror.example/", http_proxy=f"http://u:{secret}@p:1"
    )
    assert found["artifacts"]
    assert secret not in json.dumps(found)
    assert "mirror.example" not in json.dumps(found)
