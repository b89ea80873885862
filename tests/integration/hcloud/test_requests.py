# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fifty machines cost: requests counted by the lab, not by us."""

import time

import pytest

from tests.integration.hcloud.conftest import Project

MACHINES = 50
#: requests that ask for the whole fleet at once: keys, image, types, and the servers of each module
SHARED = ["/images", "/server_types", "/servers", "/servers", "/ssh_keys"]
#: seconds from one look at the running actions of all machines to the next, at least on average
LOOK = 4.0


def provision(project, machines):
    """Make machines and send them to their rescue; the results of both modules."""
    project.forget_requests()
    made = project.run(
        "hcloud_machine",
        machines=[project.machine(f"n{number:02}") for number in range(machines)],
        ssh_private_key=str(project.key),
        wait=False,
    )
    armed = project.run(
        "hcloud_rescue",
        machines=made.result["machines"],
        ssh_keys=["deploy"],
        ssh_private_key=str(project.key),
        prove=False,
    )
    return made, armed


def reads(requests):
    """The paths of what was read, without the looks at running actions."""
    return sorted(one["path"] for one in requests if one["method"] == "GET" and one["path"] != "/actions")


def test_what_was_read_for_a_new_server_is_not_read_again(project):
    made, armed = provision(project, 2)
    assert not made.failed
    assert not armed.failed, armed.result["msg"]
    assert reads(project.requests()) == SHARED
    assert [one["status"] for one in project.servers().values()] == ["running", "running"]


def test_many_servers_that_were_just_ordered_are_not_listed_again(project):
    made, armed = provision(project, 60)
    assert not made.failed
    assert not armed.failed, armed.result["msg"]
    asked = [one["query"] for one in project.requests() if (one["method"], one["path"]) == ("GET", "/servers")]
    assert asked == ["page=1&per_page=50", "name=n00"]
    assert {machine["status"] for machine in armed.result["machines"]} == {"running"}
    assert [one["status"] for one in project.call("GET", "/servers?status=off")["servers"]] == []


@pytest.mark.fleet
def test_one_machine_alone_costs_twelve_requests(lab, tmp_path):
    project = Project(lab(profile="hetzner", seed=1), tmp_path, "deploy")
    made, armed = provision(project, 1)
    assert not made.failed
    assert not armed.failed, armed.result["msg"]
    requests = project.requests()
    assert reads(requests) == SHARED
    assert len(requests) <= 12


@pytest.mark.fleet
def test_fifty_machines_cost_three_writes_each_and_a_few_looks_for_all(lab, tmp_path):
    project = Project(lab(profile="hetzner", seed=1), tmp_path, "deploy")
    began = time.monotonic()
    made, armed = provision(project, MACHINES)
    took = time.monotonic() - began
    requests = project.requests()
    assert not made.failed
    assert not armed.failed, armed.result["msg"]
    assert len(requests) == made.result["api_calls"] + armed.result["api_calls"]
    looks = [request for request in requests if request["path"].startswith("/actions")]
    writes = [request for request in requests if request["method"] != "GET"]
    assert len(writes) == 3 * MACHINES  # create, arm, start
    assert reads(requests) == SHARED
    assert len(requests) <= 3.25 * MACHINES
    # A loaded host makes both longer: the time and, with it, the number of looks.
    assert len(looks) <= took / LOOK
    assert {machine["boot_state"] for machine in armed.result["machines"]} == {"BootingToRescue"}


def test_a_short_budget_is_paced_and_never_overdrawn(project):
    began = time.monotonic()
    project.lab.control("POST", "/bucket", {"remaining": 6})
    project.forget_requests()
    project.run("hcloud_machine", machines=[project.machine(f"p{number}") for number in range(8)]).ok()
    statuses = [request["status"] for request in project.requests()]
    assert len(statuses) >= 12
    assert 429 not in statuses
    # What was missing came back at one request a second.
    assert time.monotonic() - began > len(statuses) - 6 - 1
