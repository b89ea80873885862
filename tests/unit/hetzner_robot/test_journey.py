# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way of a dedicated server into its rescue, where an earlier call ended before it had reset the server."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_boot, robot_decision, robot_reset
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_rescue import RobotRun


class Robot:
    """An account with one server whose rescue is armed; takes note of the resets."""

    def __init__(self):
        self.resets = []

    def read(self, path, _deadline, machine=None):
        return {"rescue": {"active": True}} if path.endswith("/rescue") else {"reset": {"operating_status": "running"}}

    def change(self, _method, _path, _deadline, _look, machine=None, data=None):
        return {}

    def reserve(self, _kind, _deadline):
        pass

    def request(self, _method, _path, _deadline, machine=None, data=None, reserved=False):
        self.resets.append(data["type"])
        return {"reset": {}}


class Shell:
    """A machine that does not answer."""

    def host_keys(self, _name, _address):
        return []

    def probe_elsewhere(self, _name, _address):
        return None


def test_a_server_that_was_never_reset_is_not_given_back_but_reset(monkeypatch):
    monkeypatch.setattr(robot_boot, "LOOK_AGES", -1.0)  # the turn within the hourly limit took long
    robot = Robot()
    limits = {robot_reset.SW: 600.0, robot_reset.HW: 600.0}
    tools = robot_boot.Tools(
        robot, Shell(), limits, timeout=60.0, look_timeout=1.0, strict=True, prove=False, give_back_after=180
    )
    run = RobotRun("n1", state=boot_states.BOOTING_TO_RESCUE)
    run.result["ipv4"] = "192.0.2.1"
    way = robot_boot.Journey(
        tools, run, {"server_number": 7}, robot_decision.Sight(rearm=True), {"boot_state": run.timeline.state}, None
    )
    way.types = [robot_reset.SW, robot_reset.HW]
    way.go_on()
    assert robot.resets == [robot_reset.SW]
    assert [reset["way"] for reset in run.result["resets"]] == [robot_reset.SW]


@pytest.mark.parametrize("named", [False, True])
def test_a_rescue_that_a_person_starts_while_the_run_waits_for_its_turn_is_refused(monkeypatch, named):
    robot, attached = Robot(), []
    limits = {robot_reset.HW: 600.0}
    tools = robot_boot.Tools(
        robot, Shell(), limits, timeout=60.0, look_timeout=1.0, strict=True, prove=False, give_back_after=180
    )
    run = RobotRun("n1")
    run.result["ipv4"] = "192.0.2.1"
    sight = robot_decision.Sight(answer=robot_decision.SILENT, may_reset=True, reinstall=named)
    way = robot_boot.Journey(tools, run, {"server_number": 7}, sight, {}, lambda _run, _answer: False)
    way.types = [robot_reset.HW]
    monkeypatch.setattr(way, "_wait_for_turn", lambda: True)
    monkeypatch.setattr(way, "look", lambda: setattr(sight, "answer", robot_decision.RESCUE))
    monkeypatch.setattr(way, "attach", lambda: attached.append(1))
    if named:
        way.begin()
    else:
        with pytest.raises(Refused, match="booted into a rescue while this run waited for its turn"):
            way.begin()
    assert (robot.resets, len(attached)) == ([], int(named))
