# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way of a dedicated server into its rescue, where an earlier call ended before it had reset the server."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils import _states
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import Refused
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot import journey, ladder, table
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot.rescue import RobotRun


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
    monkeypatch.setattr(journey, "LOOK_AGES", -1.0)  # the turn within the hourly limit took long
    robot = Robot()
    limits = {ladder.SW: 600.0, ladder.HW: 600.0}
    tools = journey.Tools(
        robot, Shell(), limits, timeout=60.0, look_timeout=1.0, strict=True, prove=False, give_back_after=180
    )
    run = RobotRun("n1", state=_states.BOOTING_TO_RESCUE)
    run.result["ipv4"] = "192.0.2.1"
    way = journey.Journey(
        tools, run, {"server_number": 7}, table.Sight(rearm=True), {"boot_state": run.timeline.state}, None
    )
    way.types = [ladder.SW, ladder.HW]
    way.go_on()
    assert robot.resets == [ladder.SW]
    assert [reset["way"] for reset in run.result["resets"]] == [ladder.SW]


@pytest.mark.parametrize("named", [False, True])
def test_a_rescue_that_a_person_starts_while_the_run_waits_for_its_turn_is_refused(monkeypatch, named):
    robot, attached = Robot(), []
    limits = {ladder.HW: 600.0}
    tools = journey.Tools(
        robot, Shell(), limits, timeout=60.0, look_timeout=1.0, strict=True, prove=False, give_back_after=180
    )
    run = RobotRun("n1")
    run.result["ipv4"] = "192.0.2.1"
    sight = table.Sight(answer=table.SILENT, may_reset=True, reinstall=named)
    way = journey.Journey(tools, run, {"server_number": 7}, sight, {}, lambda _run, _answer: False)
    way.types = [ladder.HW]
    monkeypatch.setattr(way, "_wait_for_turn", lambda: True)
    monkeypatch.setattr(way, "look", lambda: setattr(sight, "answer", table.RESCUE))
    monkeypatch.setattr(way, "attach", lambda: attached.append(1))
    if named:
        way.begin()
    else:
        with pytest.raises(Refused, match="booted into a rescue while this run waited for its turn"):
            way.begin()
    assert (robot.resets, len(attached)) == ([], int(named))
