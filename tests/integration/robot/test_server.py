# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""robot_server against a lab: facts for one request, names that differ, answers that get lost."""

import signal

import pytest


def server(account, name):
    """A server as Robot shows it to others."""
    return account.robot("GET", f"/server/{account.numbers[name]}")["server"]


def test_facts_of_a_fleet_cost_one_request(account):
    account.add("n1", "n2", product="EX44")
    account.forget_requests()
    run = account.run("robot_server", machines=account.machines()).ok()
    assert run.result["api_calls"] == len(account.requests()) == 1
    for name, result in run.machines.items():
        shown = server(account, name)
        assert (result["server_number"], result["ipv4"]) == (shown["server_number"], shown["server_ip"])
        assert (result["product"], result["status"], result["cancelled"]) == ("EX44", "ready", False)
        assert (result["changed"], result["transitions"]) == (False, [])


def test_servers_get_the_names_that_differ(account):
    account.add("n1", name="n1")
    account.add("n2", name="old")
    machines = [{**machine, "rename": machine["name"]} for machine in account.machines()]
    planned = account.run("robot_server", "--check", "--diff", machines=machines)
    assert planned.result["changed"]
    assert planned.machines["n2"]["msg"] == "would be renamed from 'old' to 'n2'"
    assert '\n-    "server_name": "old"\n+    "server_name": "n2"\n' in planned.output
    assert server(account, "n2")["server_name"] == "old"

    account.forget_requests()
    run = account.run("robot_server", machines=machines).ok()
    assert (run.machines["n1"]["changed"], run.machines["n2"]["changed"]) == (False, True)
    assert len(account.requests()) == 2
    assert server(account, "n2")["server_name"] == "n2"
    # Found by its name now.
    again = account.run("robot_server", machines=[{"name": "n2", "rename": "n2"}])
    assert (again.result["changed"], again.machines["n2"]["server_number"]) == (False, account.numbers["n2"])


@pytest.mark.parametrize("after_effect", [True, False])
def test_a_name_whose_answer_was_lost_is_looked_at(account, after_effect):
    account.add("n1")
    account.fault(point="request", api="robot", method="POST", path="/server/.*", drop=True, after_effect=after_effect)
    account.forget_requests()
    run = account.run("robot_server", machines=[{**account.machines()[0], "rename": "new name"}]).ok()
    assert run.machines["n1"]["server_name"] == server(account, "n1")["server_name"] == "new name"
    assert len(account.requests("POST")) == (1 if after_effect else 2)


def test_a_run_that_was_killed_gives_no_name(account):
    account.add("n1")
    account.fault(point="request", api="robot", method="POST", path="/server/.*", status=503, times=1000)
    machines = [{**account.machines()[0], "rename": "new name"}]
    account.forget_requests()
    run = account.start_module("localhost", "robot_server", machines=machines)
    run.until(lambda: account.requests("POST"), "the first try")
    run.interrupt(signal.SIGKILL)
    account.end_of_all()
    account.forget_faults()
    assert server(account, "n1")["server_name"] != "new name"


def test_one_name_that_is_refused_fails_alone(account):
    account.add("n1", "n2")
    path = f"/server/{account.numbers['n1']}"
    account.fault(point="request", api="robot", method="POST", path=path, status=400, code="INVALID_INPUT")
    machines = [{**machine, "rename": machine["name"]} for machine in account.machines()]
    given = [{**machine, "boot_state": "OperatingSystemRunning"} for machine in machines]
    run = account.run("robot_server", machines=given, on_error="report").ok()
    assert run.machines["n1"]["failed"]
    assert "INVALID_INPUT" in run.machines["n1"]["msg"]
    # A name is no part of the way to a running system.
    assert run.machines["n1"]["boot_state"] == "OperatingSystemRunning"
    assert not run.machines["n1"]["changed"]
    assert server(account, "n2")["server_name"] == "n2"


def test_input_that_cannot_work_is_refused_before_anything(account):
    account.add("n1", "n2")
    one, two = account.machines()
    cases = [
        ([{**one, "rename": ""}], "rename: '' is no name"),
        ([{**one, "rename": "a\nb"}], "rename: 'a\\nb' is no name"),
        ([{**one, "rename": "same"}, {**two, "rename": "same"}], "cannot both be named 'same'"),
        ([one, {**two, "server_number": one["server_number"]}], "is the one of machine 'n1' too"),
        ([{"name": "Not A Host"}], "no host name (RFC 1123)"),
    ]
    account.forget_requests()
    for machines, message in cases:
        account.run("robot_server", machines=machines).fails(message)
    assert account.requests() == []
    account.run("robot_server", machines=account.machines(), robot_password="wrong").fails()
    assert [one["status"] for one in account.requests()] == [401]
