# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units and handlers: restarted when they must be, not more often, and not forgotten when a run is cut off."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done
from ansible_collections.kubenode.provision.plugins.module_utils._node.settings import engine, units
from tests.clock import Clock
from tests.unit.node_engine.machine import Machine, PowerCut, setting

CONFIG = setting("file", "config", path="/etc/containerd/config.toml", content="new")
UNIT_FILE = setting("file", "unit-file", path="/etc/systemd/system/containerd.service", content="[Service]")
UNIT = setting(
    "unit",
    name="containerd",
    enabled=True,
    state="started",
    restart_on=["config", "unit-file", "artifact:containerd"],
)
ALL = [CONFIG, UNIT_FILE, UNIT]


@pytest.fixture
def machine(tmp_path):
    """A machine without containerd."""
    return Machine(tmp_path)


@pytest.fixture
def running(machine):
    """A machine on which everything is as wanted."""
    machine.apply(ALL)
    assert machine.ran == ["systemctl daemon-reload", "systemctl enable -- containerd.service"] + [
        "systemctl start -- containerd.service"
    ]
    assert not any(machine.apply(ALL).values())
    assert machine.ran == []
    assert machine.pending == "{}"
    return machine


def test_a_new_unit_is_predicted_enabled_and_started(machine):
    assert [item.step.changed for item in machine.plan(ALL)] == [True, True, True]
    assert machine.ran == []
    assert machine.apply(ALL) == {"config": True, "unit-file": True, "unit": True}


def test_a_changed_file_restarts_what_runs(running):
    running.put("/etc/containerd/config.toml", "old")
    assert running.apply(ALL) == {"config": True, "unit-file": False, "unit": True}
    assert running.ran == ["systemctl restart -- containerd.service"]
    assert running.pending == "{}"


def test_what_another_task_changed_restarts_too(running):
    assert running.apply(ALL, changed=["artifact:containerd", "artifact:runc"])["unit"]
    assert running.ran == ["systemctl restart -- containerd.service"]
    assert not running.apply(ALL)["unit"]


def test_a_unit_that_does_not_run_is_not_started_for_a_change(running):
    running.units["containerd.service"]["ActiveState"] = "inactive"
    running.put("/etc/containerd/config.toml", "old")
    waiting = {**UNIT, "state": None}
    assert not running.apply([CONFIG, waiting])["unit"]
    assert running.ran == []
    assert running.pending == "{}", "nothing waits for it any more"


@pytest.mark.parametrize("cut", ["systemctl daemon-reload", "systemctl restart"])
def test_a_restart_that_was_cut_off_happens_in_the_next_run(running, cut):
    def power_cut():
        raise PowerCut

    running.put("/etc/containerd/config.toml", "old")
    running.put("/etc/systemd/system/containerd.service", "old")
    running.programs[cut] = power_cut
    with pytest.raises(PowerCut):
        running.apply(ALL)
    running.programs.clear()
    assert running.apply(ALL) == {"config": False, "unit-file": False, "unit": True}
    assert (
        running.ran
        == ["systemctl daemon-reload", "systemctl restart -- containerd.service"][cut == "systemctl restart" :]
    )
    assert not any(running.apply(ALL).values())
    assert running.pending == "{}"


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("", 30),
        ("3s", 30),
        ("1min 30s", 95),
        ("2min", 125),
        ("1h 5s", 600),
        ("infinity", 600),
        ("1w", 600),
        ("500ms", 30),
        ("0", 30),
        ("odd", 30),
    ],
)
def test_a_start_may_take_as_long_as_the_unit_says(span, seconds):
    assert units.patience({}, {"TimeoutStartUSec": span}) == seconds
    assert units.patience({"wait": 7}, {"TimeoutStartUSec": span}) == 7


def started(machine, monkeypatch, state, **more):
    """How long, in seconds of its clock, a start was waited for until it was given up."""
    clock = Clock()
    # the module's own clock: other threads of this process may sleep meanwhile
    monkeypatch.setattr(units, "time", clock)
    machine.unit("x.service", enabled="enabled", **more)
    machine.programs["systemctl start"] = lambda: machine.units["x.service"].update(state) or Done(0, "", "")
    with pytest.raises(engine.ApplyError, match=r"unit x\.service is activating"):
        machine.apply([setting("unit", name="x", state="started")])
    return clock.now


def test_a_unit_is_waited_for_until_its_own_limit(machine, monkeypatch):
    slow = {"ActiveState": "activating", "SubState": "start"}
    assert 95 < started(machine, monkeypatch, slow, TimeoutStartUSec="1min 30s") < 98


def test_a_unit_that_is_started_again_and_again_is_not(machine, monkeypatch):
    failing = {"ActiveState": "activating", "SubState": "auto-restart"}
    assert 30 < started(machine, monkeypatch, failing, TimeoutStartUSec="1min 30s") < 33


def test_a_failed_start_has_its_last_lines_and_is_tried_again(machine):
    machine.unit("x.service", enabled="enabled")
    wanted = [setting("unit", name="x", state="started"), setting("file", path="/later", content="")]
    machine.programs["systemctl start"] = Done(1, "", "Job for x.service failed.")
    machine.programs["journalctl"] = Done(0, "unknown flag: --pod-infra-container-image\n", "")
    with pytest.raises(engine.ApplyError, match="unknown flag: --pod-infra-container-image") as caught:
        machine.apply(wanted)
    assert caught.value.failed == "unit"
    assert caught.value.results == []
    assert not machine.file("/later").exists()
    machine.programs.clear()
    assert machine.apply(wanted) == {"unit": True, "file": True}


def test_the_error_says_what_was_applied_before(machine):
    machine.programs["boom"] = Done(3, "", "no")
    wanted = [
        setting("file", "a", path="/a", content=""),
        setting("handler", argv=["boom"], on=["a"]),
        setting("file", "b", path="/b", content=""),
    ]
    with pytest.raises(engine.ApplyError, match="Applied before it: a"):
        machine.apply(wanted)
    assert [result["id"] for result in machine_results(machine, wanted)] == ["a"]
    machine.programs.clear()
    assert machine.apply(wanted) == {"a": False, "handler": True, "b": True}, "the handler is still owed"
    assert not any(machine.apply(wanted).values())


def machine_results(machine: Machine, wanted: list[dict]) -> list[dict]:
    """Results that a failed run returns."""
    with pytest.raises(engine.ApplyError) as caught:
        machine.apply(wanted)
    return caught.value.results


def test_a_handler_runs_once_for_several_changes(machine):
    wanted = [
        setting("file", "a", path="/a", content=""),
        setting("file", "b", path="/b", content=""),
        setting("handler", argv=["update-ca-certificates"], on=["a", "b", "switched-off"]),
    ]
    assert machine.apply(wanted)["handler"]
    assert machine.ran == ["update-ca-certificates"]
    assert not machine.apply(wanted)["handler"]


def test_only_some_steps_leave_the_restart_to_the_others(running):
    running.put("/etc/containerd/config.toml", "old")
    steps = [{**CONFIG, "step": "runtime"}, {**UNIT, "step": "health"}]
    assert running.apply(steps, only=["runtime"]) == {"config": True}
    assert running.ran == []
    assert running.apply(steps, only=["health"]) == {"unit": True}
    assert running.ran == ["systemctl restart -- containerd.service"]
    assert not any(running.apply(steps).values())


def test_a_unit_that_does_not_exist(machine):
    wanted = [setting("file", path="/a", content=""), setting("unit", name="ghost", state="started")]
    with pytest.raises(engine.PlanError, match=r"unit ghost.service does not exist"):
        machine.apply(wanted)
    assert not machine.file("/a").exists()
    assert machine.plan(wanted)[1].step.changed, "in check mode, its package may be yet to come"
    assert machine.apply([wanted[0], {**wanted[1], "optional": True}]) == {"file": True, "unit": False}


def test_a_unit_whose_conditions_are_not_met_is_left_until_something_changes(machine):
    unmet = {"ConditionResult": "no", "ConditionTimestampMonotonic": "77"}
    machine.unit("kubelet.service", enabled="enabled", **unmet)
    wanted = [
        setting("file", path="/etc/kubernetes/bootstrap-kubelet.conf", content="x"),
        setting("unit", name="kubelet", state="started", restart_on=["file"]),
    ]
    assert not machine.apply(wanted[1:])["unit"]
    assert machine.apply(wanted) == {"file": True, "unit": True}
    assert machine.ran == ["systemctl start -- kubelet.service"]


def test_with_wait_0_the_unit_is_not_waited_for(machine):
    machine.unit("kubelet.service", enabled="enabled", Type="simple")
    machine.programs["systemctl --no-block start"] = Done(0, "", "")
    assert machine.apply([setting("unit", name="kubelet", state="started", wait=0)]) == {"unit": True}
    assert machine.ran == ["systemctl --no-block start -- kubelet.service"]


def test_without_systemd_units_are_enabled_but_not_started(machine):
    machine.file("/run/systemd/system").rmdir()
    machine.unit("x.service")
    machine.programs["systemctl is-enabled"] = Done(1, "disabled\n", "")
    assert machine.apply([setting("unit", name="x", enabled=True, state="started")]) == {"unit": True}
    assert machine.ran == ["systemctl is-enabled -- x.service", "systemctl enable -- x.service"]
    assert len(machine.warnings) == 1


@pytest.mark.parametrize(
    ("state", "wanted", "verbs"),
    [
        ("disabled", {"enabled": True}, ["enable"]),
        ("enabled", {"enabled": True}, []),
        ("static", {"enabled": True}, []),
        ("alias", {"enabled": True}, []),
        ("masked", {"enabled": True, "masked": False}, ["unmask", "enable"]),
        ("enabled-runtime", {"enabled": True}, ["enable"]),
        ("enabled", {"enabled": False}, ["disable"]),
        ("static", {"enabled": False}, []),
        ("enabled", {"masked": True, "enabled": False}, ["disable", "mask"]),
        ("masked", {"masked": True}, []),
        ("masked-runtime", {"masked": True}, []),
        ("disabled", {}, []),
    ],
)
def test_links_of_units(state, wanted, verbs):
    assert units.file_actions({"UnitFileState": state}, wanted) == verbs


@pytest.mark.parametrize(
    ("active", "state", "heard", "action"),
    [
        ("active", "started", False, None),
        ("active", "started", True, "restart"),
        ("active", None, True, "restart"),
        ("active", "restarted_on", True, "restart"),
        ("activating", "started", False, "wait"),
        ("activating", None, True, "restart"),
        ("failed", "started", False, "start"),
        ("failed", None, True, "restart"),
        ("failed", None, False, None),
        ("inactive", "started", False, "start"),
        ("inactive", "restarted_on", True, None),
        ("active", "stopped", True, "stop"),
        ("inactive", "stopped", True, None),
    ],
)
def test_what_runs(machine, active, state, heard, action):
    wanted = setting("unit", name="x", state=state, restart_on=["a"])
    context = machine.context(changed=["a"] if heard else [])
    assert units.run_action(context, wanted, {"ActiveState": active})[0] == action


def test_reload_is_enough_where_it_is_asked_for(machine):
    machine.unit("x.service", "active", "enabled")
    wanted = [setting("unit", name="x", state="started", reload_on=["a"], restart_on=["b"])]
    machine.apply(wanted, changed=["a"])
    assert machine.ran == ["systemctl reload -- x.service"]
    machine.apply(wanted, changed=["a", "b"])
    assert machine.ran == ["systemctl restart -- x.service"]
