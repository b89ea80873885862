# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines of a run go, and what is refused before anything is done."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import leaving


def hosts(*names, **variables):
    return [{"inventory_hostname": name, **variables} for name in names]


def test_names_are_sorted_into_those_that_go_stay_and_are_elsewhere():
    found = leaving.plan(hosts("a", "b"), "delete", ["b", "c"], ["a", "b", "c"])
    assert found == {
        "errors": [],
        "named": ["b"],
        "machines": [{"name": "b"}],
        "left": ["a"],
        "elsewhere": ["c"],
        "word": ["b"],
    }
    exact = leaving.plan(hosts("a", "b"), "release", {"b": "0123abcd", "c": "0123abcd"}, ["a", "b", "c"])
    assert (exact["errors"], exact["word"]) == ([], {"b": "0123abcd"})


@pytest.mark.parametrize(
    ("extra", "inventory", "serial", "sizes"),
    [
        ({}, None, None, [1, 1, 1]),
        ({"kubenode_serial": 2}, None, 2, [2, 1]),
        ({"kubenode_serial": "2"}, 2, "2", [2, 1]),
        ({}, "zone", "zone", [1, 1, 1]),
        ({}, None, "zone", [2, 1]),  # of a playbook that imports it
        ({"kubenode_serial": 0}, None, 0, []),
        ({"kubenode_serial": "x"}, None, "x", []),
    ],
)
def test_machines_that_are_rebooted_together_are_those_of_the_run_alone(monkeypatch, extra, inventory, serial, sizes):
    monkeypatch.setattr(leaving.specification, "of_the_command_line", lambda: extra)
    fleet = hosts("a", "b", "c", zone="x")
    fleet[1]["zone"] = "y"
    if inventory is not None:
        fleet = [{**host, "kubenode_serial": inventory} for host in fleet]
    plan = leaving.reboot_plan(fleet, serial)
    assert [len(batch["machines"]) for batch in plan["batches"]] == sizes
    assert [error.startswith(f"kubenode_serial is {serial}") for error in plan["errors"]] == [True] * (not sizes)


@pytest.mark.parametrize("given", [None, [], {}])
def test_without_a_name_nothing_goes(given):
    (error,) = leaving.plan(hosts(*(f"n{number}" for number in range(12))), "delete", given)["errors"]
    assert "kubenode_delete names no machine" in error
    assert "n0, n1" in error
    assert "and 2 more" in error
    assert """-e '{"kubenode_delete": ["n0"]}'""" in error


@pytest.mark.parametrize(
    ("given", "words"),
    [("a", "kubenode_delete: 'a' is neither"), ({"a": "1"}, "is no id of an installation"), (["z"], "names z, which")],
)
def test_permissions_that_cannot_be_meant(given, words):
    errors = leaving.plan(hosts("a"), "delete", given, ["a"])["errors"]
    assert len(errors) == 1
    assert words in errors[0]


def test_a_permission_of_the_inventory_is_refused_unless_the_command_line_has_it():
    run = hosts("a", kubenode_delete=["a"])
    (error,) = leaving.plan(run, "delete", ["a"], ["a"])["errors"]
    assert "stands in the inventory" in error
    assert """-e '{"kubenode_delete": ["a"]}'""" in error
    assert leaving.plan(run, "delete", ["a"], ["a"], {"kubenode_delete"})["errors"] == []
    # variables of an importing playbook are no inventory
    assert leaving.plan(hosts("a"), "delete", ["a"], ["a"])["errors"] == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"kubenode_evict_timeout": 0}, "kubenode_evict_timeout is 0"),
        ({"kubenode_evict_timeout": "5m"}, "kubenode_evict_timeout is '5m'"),
        ({"kubenode_ready_timeout": -1}, "kubenode_ready_timeout is -1"),
        ({"kubenode_kubeconfig": "/nowhere/config"}, "kubenode_kubeconfig is /nowhere/config"),
        (
            {"join_token_create": {"kubeconfig": "/nowhere/config"}},
            "join_token_create.kubeconfig, which counts without kubenode_kubeconfig, is /nowhere/config",
        ),
        ({"kubenode_power_off": "perhaps"}, "kubenode_power_off is 'perhaps'"),
        ({"kubenode_wipe": ["all"]}, "'all' names no disk"),
        ({"kubenode_wipe": "S1"}, "kubenode_wipe: 'S1' is neither"),
    ],
)
def test_other_variables(variables, words):
    (error,) = leaving.plan(hosts("a", **variables), "release", ["a"], ["a"], {"kubenode_wipe"})["errors"]
    assert error.startswith("a: ")
    assert words in error


def test_a_disk_that_the_inventory_names_is_not_emptied_by_a_release():
    """What a forgotten entry names may hold data by now, and data has no record that uses the entry up."""
    run = [*hosts("a", kubenode_wipe=["S1"]), *hosts("b", kubenode_wipe=["S2"])]
    (error,) = leaving.plan(run, "release", ["a"], ["a", "b"])["errors"]
    assert error.startswith("a: kubenode_wipe stands in the inventory")
    assert """-e '{"kubenode_wipe": ["S1"]}'""" in error
    assert """-e '{"kubenode_wipe": []}'""" in error
    assert leaving.plan(run, "release", ["a"], ["a", "b"], {"kubenode_wipe"})["errors"] == []
    assert leaving.plan(run, "delete", ["a"], ["a", "b"])["errors"] == []


KUBECONFIG = "clusters: [{name: lab}]\ncontexts: [{name: lab}]\ncurrent-context: lab\n"


def test_a_kubeconfig_that_cannot_be_used(tmp_path):
    config = tmp_path / "config"
    config.write_text("hello")

    def errors(**variables):
        return leaving.plan(hosts("a", **variables))["errors"]

    assert errors(kubenode_kubeconfig=str(config)) == [
        f"a: kubenode_kubeconfig is {config}, which is no kubeconfig; name a file that kubectl can use"
    ]
    config.write_text(KUBECONFIG)
    assert errors(kubenode_kubeconfig=str(config), kubenode_kube_context="") == []
    wrong = f"a: kubenode_kubeconfig is {config}, which has no context 'nope'; it has lab"
    assert errors(kubenode_kubeconfig=str(config), kubenode_kube_context="nope") == [wrong]
    (error,) = errors(join_token_create={"kubeconfig": str(config), "context": "nope"})
    assert error.endswith("has no context 'nope'; it has lab")


def test_good_values_and_bad_names(tmp_path):
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    good = {"kubenode_evict_timeout": "60", "kubenode_kubeconfig": str(config), "kubenode_ignore_unreachable": "yes"}
    assert leaving.plan(hosts("a", **good))["errors"] == []
    (error,) = leaving.plan(hosts("../a"))["errors"]
    assert "cannot be a machine" in error
