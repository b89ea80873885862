# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All machines at once: whose error is whose, and the result of each."""

from __future__ import annotations

import functools
import threading
import time
from types import SimpleNamespace

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, text
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import (
    boot_flow,
    cloud_rescue,
    cloud_servers,
    labels,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    ApiError,
    Deadline,
    FleetError,
    MachineError,
    Refused,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_decision import ObservedState
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import MachineRun, explain, run_all
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import DENIED, SILENT, SYSTEM, Answer
from tests.clock import Clock


class Stoppable:
    """In place of the API: notes a stop."""

    def __init__(self):
        self.stopped_by = None

    def stop(self, error):
        self.stopped_by = error


def runs(count):
    return [MachineRun(f"n{number}") for number in range(count)]


def test_all_machines_are_under_way_at_the_same_time():
    machines = runs(40)
    barrier = threading.Barrier(len(machines), timeout=180)
    run_all(Stoppable(), machines, lambda _run: barrier.wait())
    assert not any(run.result["failed"] for run in machines)


def test_one_machines_error_is_its_own():
    machines = runs(3)

    def work(run):
        if run.name == "n1":
            raise MachineError("broken")

    run_all(Stoppable(), machines, work)
    assert [run.result["failed"] for run in machines] == [False, True, False]
    assert machines[1].finish(4)["boot_state"] == boot_states.PROVISIONING_FAILED
    assert machines[1].finish(4)["api_calls"] == 4


def test_a_refusal_is_no_change_of_the_boot_state():
    (run,) = runs(1)
    run.timeline.to(boot_states.INITIALIZING)

    def work(_run):
        raise Refused("not mine")

    run_all(Stoppable(), [run], work)
    result = run.finish(0)
    assert (result["failed"], result["msg"], result["boot_state"]) == (True, "not mine", boot_states.INITIALIZING)


@pytest.mark.parametrize("error", [FleetError("token"), ZeroDivisionError("bug")])
def test_any_other_error_stops_the_api_and_is_raised(error):
    api = Stoppable()

    def work(run):
        if run.name == "n1":
            raise error

    with pytest.raises(type(error), match=str(error)):
        run_all(api, runs(3), work)
    assert isinstance(api.stopped_by, FleetError)


def test_no_machines_no_work():
    run_all(Stoppable(), [], lambda _run: pytest.fail("there is no machine to work on"))


def test_errors_with_a_known_way_out_name_it():
    assert "higher limit" in str(explain(ApiError(403, "resource_limit_exceeded", "limit")))
    assert str(explain(MachineError("plain"))) == "plain"


@pytest.mark.parametrize(
    ("limit", "answers", "least", "most", "found"),
    [
        (360, [(0, DENIED)], 15, 18, DENIED),
        (360, [(0, DENIED), (10, SILENT), (40, DENIED)], 55, 58, DENIED),
        (360, [(0, DENIED), (5, SILENT)], 350, 360, SILENT),
        (40, [(0, SILENT)], 30, 40, SILENT),
    ],
)
def test_a_running_system_that_refuses_our_key_is_not_asked_for_minutes(
    monkeypatch, limit, answers, least, most, found
):
    """One that boots may have no keys yet, so one refusal is not enough; a silent one has ``rescue_timeout``."""
    clock = Clock()
    monkeypatch.setattr(boot_flow, "Deadline", functools.partial(Deadline, clock=clock, sleep=clock.sleep))
    flow = object.__new__(cloud_rescue.CloudFlow)
    flow.fleet = SimpleNamespace(rescue_timeout=limit)
    flow.seen, notes, said = ObservedState("running"), [], []
    flow.run = SimpleNamespace(says=said.append)
    monkeypatch.setattr(flow, "probe", lambda: Answer([kind for since, kind in answers if since <= clock.now][-1]))
    monkeypatch.setattr(flow, "note", notes.append)
    flow.look()
    assert least <= clock.now <= most
    assert flow.seen.answer == found
    first = "asking which system runs, 10 of at most"
    assert said[0].startswith(f"{first} {limit} s: SSH ")
    assert len(said) == 1 + int((clock.now - 10) // 60)


#: More servers than one page of a list has.
MANY = [f"n{number}" for number in range(60)]


def ordered(name, age=5, **more):
    """What hcloud_machine returns of a server that it has just ordered, without waiting for it."""
    return {
        "name": name,
        "id": 100 + int(name[1:]),
        "ipv4": "192.0.2.7",
        "private_net": [],
        "installation": "5f" * 16,
        "fresh": True,
        "create_action": {"id": 7, "command": "create_server", "status": "running"},
        "boot_state": boot_states.INITIALIZING,
        "boot_state_since": text.to_rfc3339(time.time() - age),
        **more,
    }


def looked_at(monkeypatch, machines, state="rescue"):
    """Which servers hcloud_rescue reads, and what it takes for their state."""
    plan = SimpleNamespace(possible=True, fits=True)
    api = SimpleNamespace(budget=SimpleNamespace(plan=lambda *_given: plan))
    fleet = cloud_rescue.CloudRescue(api, None, boot_flow.BootOptions(machines, state=state))
    asked = []
    monkeypatch.setattr(
        fleet.servers,
        "find",
        lambda names, _deadline, ours_first: asked.extend(names) or {one: {"status": "off"} for one in names},
    )
    monkeypatch.setattr(fleet, "_keys", lambda *_given: [])
    fleet._look([fleet.run_of(one) for one in machines])
    return asked, fleet._found


def test_of_many_servers_that_were_just_ordered_one_is_read(monkeypatch):
    asked, found = looked_at(monkeypatch, [ordered(name) for name in MANY])
    assert asked == MANY[:1]
    assert found["n0"] == {"status": "off"}
    server = found["n9"]
    assert (server["id"], server["status"], server["rescue_enabled"]) == (109, "initializing", False)
    assert labels.is_ours(server)
    assert labels.installation_of(server) == "5f" * 16
    assert cloud_servers.ssh_address(server) == "192.0.2.7"


@pytest.mark.parametrize(
    "more",
    [
        {"age": 60},  # another run, or a person, may have used it since
        {"fresh": False},
        {"create_action": {"id": 7, "command": "create_server", "status": "success"}},
        {"installation": ""},
        {"private_net": [{"network": 1, "ip": None, "alias_ips": []}]},  # its address there has to be read
    ],
)
def test_a_server_that_may_be_more_than_ordered_is_read(monkeypatch, more):
    machines = [ordered(name, **(more if name == "n9" else {})) for name in MANY]
    asked, found = looked_at(monkeypatch, machines)
    assert asked == ["n9"]
    assert (len(found), found["n9"]) == (len(MANY), {"status": "off"})


@pytest.mark.parametrize(("count", "state"), [(50, "rescue"), (60, "os"), (60, "disarmed")])
def test_where_one_page_shows_all_servers_they_are_read(monkeypatch, count, state):
    asked, _found = looked_at(monkeypatch, [ordered(name) for name in MANY[:count]], state)
    assert asked == MANY[:count]


@pytest.mark.parametrize(
    ("public", "addresses", "rebooted"),
    [
        ("192.0.2.1", ("192.0.2.1",), True),
        ("192.0.2.1", (), False),
        (None, ("10.0.0.2",), False),  # behind another jump host, another machine has that one
    ],
)
def test_a_cloud_machine_that_does_not_show_which_it_is_is_reset_by_the_api(monkeypatch, public, addresses, rebooted):
    flow, done = object.__new__(cloud_rescue.CloudFlow), []
    flow.run, flow._answer = MachineRun("n1"), Answer(SYSTEM, boot_id="b", addresses=addresses)
    flow.result = {"previous_boot_id": "b", "address": "10.0.0.2", "ipv4": public}
    flow.result["private_net"] = [{"ip": "10.0.0.2"}]
    shell = SimpleNamespace(shows_a_known_key=lambda _name: False, reboot=lambda *_given: done.append("reboot") or True)
    flow.fleet = SimpleNamespace(shell=shell)
    monkeypatch.setattr(flow, "_went_down", lambda _previous: True)
    monkeypatch.setattr(flow, "_booting", lambda: None)
    monkeypatch.setattr(flow, "_hard_reset", lambda: done.append("reset"))
    flow._reboot()
    assert done == ["reboot" if rebooted else "reset"]
