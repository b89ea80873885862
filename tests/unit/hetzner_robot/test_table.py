# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables: what happens to a dedicated server, given who answers; and which reset comes next."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import times
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_decision, robot_reset
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_decision import Sight
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_rescue import contact_used

ANSWERS = (
    robot_decision.RESCUE,
    robot_decision.INSTALLED,
    robot_decision.OTHER,
    robot_decision.SILENT,
    robot_decision.DENIED,
)
ARMING = (robot_decision.ARM_AND_REBOOT, robot_decision.ARM_AND_RESET, robot_decision.GO_ON)

RESCUE_TABLE = [
    (Sight(), robot_decision.PROBE),
    (Sight(robot_decision.RESCUE), robot_decision.ASK_RESCUE),
    (Sight(robot_decision.RESCUE, intended=True), robot_decision.ATTACH),
    (Sight(robot_decision.RESCUE, intended=False), robot_decision.REFUSE_RESCUE),
    (Sight(robot_decision.RESCUE, reinstall=True), robot_decision.ATTACH),
    (Sight(robot_decision.RESCUE, rearm=True), robot_decision.ATTACH),
    (Sight(robot_decision.INSTALLED), robot_decision.LEAVE),
    (Sight(robot_decision.INSTALLED, rearm=True), robot_decision.LEAVE),
    (Sight(robot_decision.INSTALLED, reinstall=True), robot_decision.ARM_AND_REBOOT),
    (Sight(robot_decision.OTHER), robot_decision.LEAVE),
    (Sight(robot_decision.OTHER, rearm=True), robot_decision.LEAVE),
    (Sight(robot_decision.OTHER, rearm=True, reinstall=True), robot_decision.GO_ON),
    (Sight(robot_decision.OTHER, reinstall=True), robot_decision.ARM_AND_REBOOT),
    (Sight(robot_decision.SILENT), robot_decision.ASK_POWER),
    (Sight(robot_decision.SILENT, off=True), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.SILENT, off=False), robot_decision.REFUSE_LIVE),
    (Sight(robot_decision.SILENT, may_reset=True), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.SILENT, rearm=True), robot_decision.GO_ON),
    (Sight(robot_decision.SILENT, reinstall=True), robot_decision.ASK_POWER),
    (Sight(robot_decision.SILENT, reinstall=True, off=True), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.SILENT, reinstall=True, off=False), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.DENIED), robot_decision.REFUSE_LIVE),
    (Sight(robot_decision.DENIED, may_reset=True), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.DENIED, reinstall=True), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.DENIED, rearm=True), robot_decision.GO_ON),
    (Sight(robot_decision.SILENT, proven=True), robot_decision.REFUSE_SILENT),
    (Sight(robot_decision.DENIED, proven=True), robot_decision.REFUSE_SILENT),
    (Sight(robot_decision.SILENT, proven=True, may_reset=True), robot_decision.REFUSE_SILENT),
    (Sight(robot_decision.SILENT, proven=True, reinstall=True), robot_decision.ASK_POWER),
    (Sight(robot_decision.SILENT, proven=True, reinstall=True, off=False), robot_decision.ARM_AND_RESET),
    (Sight(robot_decision.SILENT, proven=True, rearm=True), robot_decision.GO_ON),
    (Sight(robot_decision.RESCUE, proven=True), robot_decision.ASK_RESCUE),
]

OS_TABLE = [
    (Sight(), robot_decision.PROBE),
    (Sight(robot_decision.RESCUE), robot_decision.LEAVE_RESCUE),
    (Sight(robot_decision.RESCUE, armed=True), robot_decision.LEAVE_RESCUE),
    (Sight(robot_decision.OTHER, armed=True), robot_decision.DISARM),
    (Sight(robot_decision.SILENT, armed=True), robot_decision.DISARM),
    (Sight(robot_decision.OTHER), robot_decision.LEAVE),
    (Sight(robot_decision.SILENT), robot_decision.LEAVE),
]


def label(value):
    return " ".join("%s=%s" % item for item in vars(value).items() if item[1]) if isinstance(value, Sight) else value


@pytest.mark.parametrize(("sight", "expected"), RESCUE_TABLE, ids=label)
def test_towards_rescue(sight, expected):
    assert robot_decision.towards_rescue(sight) == expected


@pytest.mark.parametrize(("sight", "expected"), OS_TABLE, ids=label)
def test_towards_os(sight, expected):
    assert robot_decision.towards_os(sight) == expected


@pytest.mark.parametrize("rearm", [True, False])
def test_a_system_of_ours_that_lets_us_in_is_never_reset_without_consent(rearm):
    assert robot_decision.towards_rescue(Sight(robot_decision.INSTALLED, rearm=rearm)) not in ARMING


@pytest.mark.parametrize("answer", [robot_decision.SILENT, robot_decision.DENIED])
@pytest.mark.parametrize("proven", [True, False])
def test_nobody_is_reset_who_may_serve_somebody(answer, proven):
    assert robot_decision.towards_rescue(Sight(answer, proven=proven, off=False)) not in ARMING


def test_every_sight_has_a_step():
    for answer, reinstall, rearm, armed in itertools.product(ANSWERS, *[(True, False)] * 3):
        sight = Sight(answer, reinstall, rearm, armed)
        steps = (
            *ARMING,
            robot_decision.ATTACH,
            robot_decision.ASK_RESCUE,
            robot_decision.LEAVE,
            robot_decision.ASK_POWER,
            robot_decision.REFUSE_LIVE,
        )
        assert robot_decision.towards_rescue(sight) in steps
        assert robot_decision.towards_os(sight) in (
            robot_decision.DISARM,
            robot_decision.LEAVE,
            robot_decision.LEAVE_RESCUE,
        )


ALL = ["sw", "hw", "power", "power_long", "man"]


def climb(offered, status=None, by_ssh=False, wol=False):
    """All ways in their order, while what is known stays the same."""
    tried = []
    while True:
        way = robot_reset.next_way(offered, tried, status, by_ssh=by_ssh, wol=wol)
        if way is None:
            return tried
        tried.append(way)


@pytest.mark.parametrize(
    ("offered", "more", "ways"),
    [
        (ALL, {}, ["sw", "hw", "power", "power", "hw"]),
        (ALL, {"by_ssh": True}, ["ssh", "sw", "hw", "power", "power", "hw"]),
        (ALL, {"wol": True}, ["sw", "hw", "power", "power", "hw", "wol"]),
        (ALL, {"status": "running"}, ["sw", "hw", "power", "hw"]),
        (ALL, {"status": "shut off"}, ["power", "power"]),
        (["power", "power_long", "hw", "man"], {}, ["hw", "power", "power", "hw"]),
        (["hw"], {}, ["hw", "hw"]),
        (["hw"], {"status": "shut off", "wol": True}, ["wol"]),
        (["man"], {}, []),
        ([], {"wol": True}, ["wol"]),
        ([], {"by_ssh": True}, ["ssh"]),
    ],
)
def test_from_gentle_to_hard(offered, more, ways):
    assert climb(offered, **more) == ways


def test_a_later_call_goes_on_where_the_earlier_one_stood():
    assert robot_reset.next_way(ALL, ["sw"]) == "hw"
    assert robot_reset.next_way(ALL, ["ssh"], by_ssh=True) == "sw"
    assert robot_reset.next_way(ALL, ["hw"]) == "power"


@given(
    st.lists(st.sampled_from([*ALL, "unknown"]), unique=True),
    st.lists(st.sampled_from([None, "running", "shut off", "not supported"]), min_size=12, max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_no_ladder_sends_a_technician_holds_a_button_or_has_no_end(offered, statuses, by_ssh, wol):
    tried = []
    for status in statuses:
        way = robot_reset.next_way(offered, tried, status, by_ssh=by_ssh, wol=wol)
        if way is None:
            break
        assert way in ("ssh", "sw", "hw", "power", "wol")
        assert way in offered or way in ("ssh", "wol")
        tried.append(way)
    assert len(tried) <= 7
    assert all(tried.count(way) <= (2 if way in ("power", "hw") else 1) for way in tried)


ARMED = {"machine": "n1", "installation": "0" * 32, "state": "open", "armed_at": times.to_rfc3339(time.time())}


@pytest.mark.parametrize(
    ("word", "kept", "used"),
    [
        ("once", None, ""),
        ("once", ARMED, ""),
        ("once", {**ARMED, "machine": "n2", "state": "done"}, ""),
        ("once", {**ARMED, "state": "done", "ended_at": "T"}, "its system was proven at T"),
        ("once", {**ARMED, "state": "seen", "ended_at": "T"}, "a system was seen at T"),
        ("once", {**ARMED, "state": "given up", "ended_at": "T"}, "it was given up at T"),
        ("once", {**ARMED, "armed_at": "2020-01-01T00:00:00Z"}, "a run has armed its rescue at 2020-01-01"),
        ("reset", {**ARMED, "state": "given up"}, ""),
        ("refuse", {**ARMED, "state": "given up"}, ""),
        (None, {**ARMED, "state": "given up"}, ""),
    ],
)
def test_a_word_about_the_first_contact_counts_until_a_run_has_ended(word, kept, used):
    why = contact_used("n1", word, kept)
    assert used in why
    assert bool(why) is bool(used)
