# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_machine where the API is out of stock: what is tried next, and what is said of it."""

import pytest

SEVERAL = {"server_type": ["cx23", "cx33"], "location": ["fsn1", "nbg1"]}


def creations(project):
    """The types and locations that were asked for, in their order, by the answers' status."""
    return [one["status"] for one in project.requests() if (one["method"], one["path"]) == ("POST", "/servers")]


def test_the_next_location_is_tried_then_the_next_type_and_the_result_says_so(project):
    project.fault(point="stock", server_type="cx23", times=99)
    project.fault(point="stock", server_type="cx33", location="fsn1", times=99)
    run = project.run("hcloud_machine", machines=[project.machine("n1", **SEVERAL)]).ok()
    server, machine = project.server("n1"), run.machines["n1"]
    assert (server["server_type"]["name"], server["location"]["name"]) == ("cx33", "nbg1")
    assert (machine["server_type"], machine["location"]) == ("cx33", "nbg1")
    pairs = [(one["server_type"], one["location"], one["error"]) for one in machine["tried"]]
    assert pairs == [
        ("cx23", "fsn1", "resource_unavailable"),
        ("cx23", "nbg1", "resource_unavailable"),
        ("cx33", "fsn1", "resource_unavailable"),
    ]
    assert machine["msg"].startswith("created, powered off: cx33 in nbg1, as there was no room for cx23 in fsn1 (")
    assert machine["price_monthly"] == 4.99
    assert creations(project) == [412, 412, 412, 201]

    again = project.run("hcloud_machine", machines=[project.machine("n1", **SEVERAL)])
    assert (again.result["changed"], again.machines["n1"]["msg"]) == (False, "exists")
    assert (again.machines["n1"]["tried"], again.machines["n1"]["instead"]) == ([], "")


def test_machines_of_one_call_learn_from_each_other(project):
    project.fault(point="stock", location="fsn1", times=99)
    names = [f"n{number}" for number in range(12)]
    run = project.run("hcloud_machine", machines=[project.machine(name, **SEVERAL) for name in names]).ok()
    assert {server["location"]["name"] for server in project.servers().values()} == {"nbg1"}
    # no more than are on their way at once ask for what is not there
    assert creations(project).count(412) <= 8
    assert all(machine["tried"][0]["location"] == "fsn1" for machine in run.machines.values())


def test_a_placement_error_is_tried_elsewhere_and_a_limit_is_not(project):
    project.fault(point="stock", location="fsn1", code="placement_error")
    run = project.run("hcloud_machine", machines=[project.machine("n1", **SEVERAL)])
    assert run.machines["n1"]["tried"] == [{"server_type": "cx23", "location": "fsn1", "error": "placement_error"}]
    assert run.machines["n1"]["location"] == "nbg1"

    project.fault(point="request", method="POST", path="/servers", status=403, code="resource_limit_exceeded")
    project.forget_requests()
    run = project.run("hcloud_machine", machines=[project.machine("n2", **SEVERAL)], on_error="report")
    assert "higher limit" in run.machines["n2"]["msg"]
    assert creations(project) == [403]


def test_when_nothing_is_left_everything_that_was_tried_is_named(project):
    project.fault(point="stock", times=99)
    run = project.run("hcloud_machine", machines=[project.machine("n1", **SEVERAL)], on_error="report")
    machine = run.machines["n1"]
    assert machine["failed"]
    for pair in ("cx23 in fsn1", "cx23 in nbg1", "cx33 in fsn1", "cx33 in nbg1"):
        assert f"{pair} (resource_unavailable)" in machine["msg"]
    assert "Name further server types or locations" in machine["msg"]
    assert project.servers() == {}


@pytest.mark.parametrize(
    ("server_type", "location", "finding"),
    [
        (["cx23", "cax11"], ["fsn1"], "server_type: cx23 is x86, cax11 is arm"),
        (["cx23"], ["fsn1", "ash"], "none of the server types cx23 is offered in 'ash'"),
        (["cx23", "cpx11"], ["fsn1"], "server type 'cpx11' is not offered in 'fsn1'"),
    ],
)
def test_what_can_never_be_is_refused_before_anything_is_created(project, server_type, location, finding):
    machines = [project.machine("good"), project.machine("n1", server_type=server_type, location=location)]
    run = project.run("hcloud_machine", machines=machines).fails()
    assert f"machine 'n1': {finding}" in run.result["msg"] or finding in run.result["msg"]
    assert project.servers() == {}


def test_machines_of_a_placement_group_begin_with_different_locations(project):
    project.call("POST", "/placement_groups", {"name": "control", "type": "spread"})
    several = {"location": ["fsn1", "nbg1", "hel1"], "placement_group": "control"}
    first = [project.machine("c1", **several)]
    run = project.run("hcloud_machine", machines=first)
    assert run.machines["c1"]["location"] == "fsn1"
    rest = [project.machine(name, **several) for name in ("c1", "c2", "c3", "c4")]
    run = project.run("hcloud_machine", machines=rest).ok()
    assert [run.machines[name]["location"] for name in ("c2", "c3", "c4")] == ["nbg1", "hel1", "fsn1"]
    assert all(not machine["tried"] for machine in run.machines.values())


def test_the_api_chooses_another_location_when_none_was_asked_for(project):
    project.fault(point="stock", server_type="cx23", location="fsn1")
    run = project.run("hcloud_machine", machines=[project.machine("n1", location=None)])
    assert (run.machines["n1"]["location"], run.machines["n1"]["tried"]) == ("nbg1", [])
