# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API that fails, locks, throttles and loses answers: nothing doubled, no other server harmed, no traceback."""

import pytest


def create(project, *names, **options):
    return project.run("hcloud_machine", machines=[project.machine(name) for name in names], **options)


def rescue(project, run, **options):
    return project.run("hcloud_rescue", machines=run.result["machines"], ssh_keys=["deploy"], prove=False, **options)


@pytest.mark.parametrize("how", [{"status": 502}, {"status": 504, "code": "timeout"}, {"drop": True}])
def test_a_lost_create_is_found_and_not_doubled(project, how):
    project.fault(point="request", method="POST", path="/servers", after_effect=True, **how)
    run = create(project, "n1", "n2").ok()
    assert all(machine["created"] for machine in run.machines.values())
    assert sorted(project.servers()) == ["n1", "n2"]


def test_a_create_that_never_happened_is_sent_again(project):
    project.fault(point="request", method="POST", path="/servers", status=502, times=2)
    create(project, "n1").ok()
    assert list(project.servers()) == ["n1"]


@pytest.mark.parametrize("route", ["enable_rescue", "poweron"])
@pytest.mark.parametrize("how", [{"status": 502}, {"drop": True}])
def test_a_lost_mutation_is_found_in_the_history(project, route, how):
    run = create(project, "n1", wait=False)
    project.fault(point="request", method="POST", path=f".*/actions/{route}", after_effect=True, **how)
    assert not rescue(project, run).failed
    assert project.commands("n1") == ["create_server", "enable_rescue", "start_server"]


def test_locks_and_throttling_are_waited_out(project):
    run = create(project, "n1")
    project.fault(point="request", method="POST", path=".*/enable_rescue", status=423, code="locked", times=2)
    project.fault(point="request", method="POST", path=".*/poweron", status=429, code="rate_limit_exceeded")
    assert not rescue(project, run).failed
    assert project.commands("n1") == ["create_server", "enable_rescue", "start_server"]


def test_a_failed_arming_is_asked_for_again(project):
    run = create(project, "n1")
    project.fault(point="action", machine="n1", command="enable_rescue", code="unknown_error")
    assert not rescue(project, run).failed
    assert project.commands("n1") == ["create_server", "enable_rescue", "enable_rescue", "start_server"]


@pytest.mark.parametrize(
    "fault",
    [
        {"point": "request", "method": "POST", "path": ".*/actions/poweron", "status": 422, "code": "unprocessable"},
        {"point": "action", "machine": "n1", "command": "enable_rescue", "code": "unknown_error", "times": 3},
    ],
)
def test_a_run_that_gives_a_machine_up_disarms_it(project, fault):
    """The next boot, from the console or by hand, is from its disk."""
    run = create(project, "n1")
    project.fault(**fault)
    armed = rescue(project, run, on_error="report", timeout=12)
    assert armed.machines["n1"]["failed"], armed.output
    assert "The rescue is disarmed" in armed.machines["n1"]["msg"]
    assert project.commands("n1")[-1] == "disable_rescue"
    assert not project.servers()["n1"]["rescue_enabled"]


def test_a_second_try_that_fails_disarms(project):
    run = rescue(project, create(project, "n1"))
    project.fault(point="request", method="POST", path=".*/actions/reset", status=422, code="unprocessable", times=9)
    limits = {"ssh_args": "-o ProxyCommand=false", "rescue_timeout": 3, "rearm": True}
    again = rescue(project, run, on_error="report", **limits)
    assert again.machines["n1"]["failed"], again.output
    assert project.commands("n1")[-2:] == ["enable_rescue", "disable_rescue"]
    assert not project.servers()["n1"]["rescue_enabled"]


def test_a_rescue_that_cannot_be_disabled_is_reported(project):
    """Its arming does not come to an end, and locks the server."""
    run = create(project, "n1")
    project.fault(point="action", machine="n1", command="enable_rescue", effect="stuck")
    armed = rescue(project, run, on_error="report", timeout=12)
    assert "The rescue may still be enabled for the next boot" in armed.machines["n1"]["msg"]


@pytest.mark.parametrize("options", [{}, {"rearm": True}, {"state": "disarmed"}])
def test_a_server_that_was_deleted_meanwhile_is_called_that(project, options):
    run = create(project, "n1") if not options else rescue(project, create(project, "n1"))
    project.call("DELETE", f"/servers/{run.machines['n1']['id']}")
    gone = rescue(project, run, on_error="report", **options).machines["n1"]
    assert "server 'n1' was deleted in the meantime; run the playbook again" in gone["msg"]
    # of one without a state yet, nothing is known
    none = project.run("hcloud_rescue", machines=[{"name": "n1"}], ssh_keys=["deploy"], prove=False).machines["n1"]
    assert "there is no server 'n1'; create it" in none["msg"]


@pytest.mark.parametrize("route", ["enable_rescue", "poweron"])
def test_a_server_that_is_deleted_under_our_hands_is_called_that(project, route):
    run = create(project, "n1")
    project.fault(point="request", method="POST", path=f".*/{route}", status=404, code="not_found")
    gone = rescue(project, run, on_error="report").machines["n1"]
    assert "server 'n1' was deleted in the meantime; run the playbook again" in gone["msg"]
    assert "still be enabled" not in gone["msg"]


def test_a_failed_create_is_one_machines_failure(project):
    project.fault(point="action", machine="n2", command="create_server", code="placement_error", message="no room")
    run = create(project, "n1", "n2", "n3").fails()
    assert run.result["msg"].startswith("1 of 3 machines failed: n2: the API action create_server")
    assert "choose another location" in run.machines["n2"]["msg"]
    assert run.machines["n2"]["boot_state"] == "ProvisioningFailed"
    assert not run.machines["n1"]["failed"]
    assert not run.machines["n3"]["failed"]


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (412, "resource_unavailable", "choose another location or server_type"),
        (403, "resource_limit_exceeded", "higher limit"),
        (409, "uniqueness_error", "set adopt to true"),
    ],
)
def test_refusals_of_the_api_name_the_way_out(project, status, code, hint):
    project.fault(point="request", method="POST", path="/servers", status=status, code=code)
    run = create(project, "n1", on_error="report").ok()
    assert hint in run.machines["n1"]["msg"]
    assert run.machines["n1"]["failed"]


def test_a_stuck_action_ends_with_the_time_limit_and_delays_no_other_machine(project):
    project.fault(point="action", machine="n1", command="create_server", effect="stuck")
    run = create(project, "n1", "n2", timeout=25).fails()
    assert "was not reached within 25 s: the API action create_server" in run.machines["n1"]["msg"]
    assert not run.machines["n2"]["failed"]


def test_a_machine_that_failed_before_is_handed_on_untouched(project):
    project.fault(point="request", method="POST", path="/servers", status=412, code="resource_unavailable")
    run = create(project, "n1", "n2", on_error="report")
    failed = next(name for name, machine in run.machines.items() if machine["failed"])
    armed = rescue(project, run, on_error="report")
    assert armed.machines[failed]["msg"] == run.machines[failed]["msg"]
    other = next(name for name in run.machines if name != failed)
    assert armed.machines[other]["boot_state"] == "BootingToRescue"
