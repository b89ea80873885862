# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers of ours that were given another name: never called gone, and never made a second time where they are seen."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Api
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_machines import MachineFleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import LABEL
from tests.unit.hetzner.scripted import Reply, ScriptedServer

RENAMED = {"id": 60000005, "name": "old-n2", "labels": {LABEL: "n2"}, "status": "running", "private_net": []}
OURS = {"id": 60000004, "name": "n1", "labels": {LABEL: "n1"}, "status": "off", "private_net": []}
CHECKED = {"labels": {}, "adopt": False}


def page(*servers, following=None):
    return Reply(200, {"servers": list(servers), "meta": {"pagination": {"next_page": following, "last_page": 9}}})


def absent(names, *replies):
    """The results by name, and the queries that the API was asked."""
    with ScriptedServer(*replies) as script:
        fleet = MachineFleet(
            Api("token", script.endpoint), [{"name": name} for name in names], state="absent", check_mode=True
        )
        results = {result["name"]: result for result in fleet.run()}
    return results, [path for _method, path, _headers, _body in script.requests]


COPIED = {"id": 60000006, "name": "n7", "labels": {LABEL: "n2"}, "status": "running", "private_net": []}
REFUSED = (
    "no server is called n2, but old-n2 (id 60000005) has its label; rename it back, or take the label "
    "kubenode.provision/machine off it, where it is not n2"
)


def test_one_that_was_renamed_is_not_gone():
    results, asked = absent(["n2"], page(RENAMED))
    assert results["n2"]["failed"]
    assert not results["n2"]["changed"]
    assert results["n2"]["msg"] == REFUSED
    assert len(asked) == 1


def test_a_list_of_all_servers_says_it_without_a_request():
    results, asked = absent(["n1", "n2"], page(OURS, RENAMED))
    assert REFUSED in results["n2"]["msg"]
    assert results["n1"]["msg"] == "would delete the server"
    assert len(asked) == 1


def test_where_not_all_were_listed_it_is_asked_for_those_that_are_missing():
    # the first of many pages; then n2 and n3 by name; then the label
    results, asked = absent(["n1", "n2", "n3"], page(OURS, following=2), page(), page(), page(RENAMED))
    assert REFUSED in results["n2"]["msg"]
    assert results["n3"]["msg"] == "there is no such server"
    assert "n2%2Cn3" in asked[-1]


def test_what_nothing_has_the_label_of_is_gone():
    results, _asked = absent(["n2"], page(), page())
    assert (results["n2"]["failed"], results["n2"]["msg"]) == (False, "there is no such server")


def test_all_that_have_its_label_are_named():
    results, _asked = absent(["n2"], page(RENAMED, COPIED))
    assert results["n2"]["msg"] == (
        "no server is called n2, but old-n2 (id 60000005) and n7 (id 60000006) have its label; rename the one back "
        "that is n2, and take the label kubenode.provision/machine off the others"
    )


def test_a_server_with_the_label_of_another_machine_does_not_lack_it():
    results, _asked = absent(["n7"], page(COPIED))
    assert results["n7"]["msg"] == (
        "server 'n7' (id 60000006) is not known as ours (its label kubenode.provision/machine says 'n2'; where that is "
        "wrong, correct it) and is not deleted; delete it where it was made, or adopt it first"
    )


@pytest.mark.parametrize("state", ["present", "started"])
def test_none_is_made_beside_it_where_the_servers_are_listed_anyway(state):
    with ScriptedServer(page(RENAMED)) as script:
        api = Api("token", script.endpoint)
        fleet = MachineFleet(api, [{"name": "n1"}, {"name": "n2"}], state=state, check_mode=True)
        fleet._check_input = lambda _catalog: None
        fleet._look()
        steps = {name: fleet._step({"name": name, **CHECKED}) for name in ("n1", "n2")}
        assert steps == {"n1": "create", "n2": "refuse"}
        why = fleet._why_refused("n2", None)
    assert why.startswith("no server is called n2, but old-n2 (id 60000005) has its label; rename it back, or take")
    assert len(script.requests) == 1


def test_a_new_machine_costs_no_request_for_it():
    with ScriptedServer(page()) as script:
        fleet = MachineFleet(Api("token", script.endpoint), [{"name": "n1"}], check_mode=True)
        fleet._check_input = lambda _catalog: None
        fleet._look()
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"load_balancers": [], "volumes": [], "public_net": {"floating_ips": []}}, ""),
        ({"load_balancers": [7]}, " (what stays and costs: load balancer 7)"),
        (
            {"load_balancers": [7, 8], "volumes": [3], "public_net": {"floating_ips": [5]}},
            " (what stays and costs: load balancers 7, 8; volume 3; floating IP 5)",
        ),
    ],
)
def test_what_stays_without_the_server_is_named(more, said):
    results, _asked = absent(["n1"], page({**OURS, **more}))
    assert results["n1"]["msg"] == f"would delete the server{said}"
