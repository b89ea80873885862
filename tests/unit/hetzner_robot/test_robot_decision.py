# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables: what happens to a dedicated server, given who answers; and which reset comes next."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import text
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import boot_decision as decision
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import reset_escalation
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_decision import ObservedState
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_rescue import contact_used
from tests.unit.hetzner.test_decisions import ANSWERS, label


def seen(answer=None, **more):
    """A dedicated server."""
    return ObservedState(answer=answer, **more)


ARMING = (decision.ARM_AND_REBOOT, decision.ARM_AND_RESET, decision.CONTINUE)

RESCUE_TABLE = [
    (seen(), decision.PROBE),
    (seen(decision.RESCUE), decision.ASK_RESCUE),
    (seen(decision.RESCUE, intended="empty"), decision.ASK_KEYS),
    (seen(decision.RESCUE, intended="empty", keys_proven=True), decision.ATTACH),
    (seen(decision.RESCUE, intended="empty", keys_proven=False), decision.ATTACH),
    (seen(decision.RESCUE, intended="empty", keys_proven=False, may_reset=True), decision.ARM_AND_RESET),
    (seen(decision.RESCUE, intended=""), decision.REFUSE_RESCUE),
    (seen(decision.RESCUE, intended="", may_reset=True), decision.REFUSE_RESCUE),
    (seen(decision.RESCUE, reinstall=True), decision.ASK_KEYS),
    (seen(decision.RESCUE, reinstall=True, keys_proven=True), decision.ATTACH),
    (seen(decision.RESCUE, reinstall=True, keys_proven=False), decision.ARM_AND_RESET),
    (seen(decision.RESCUE, rearm=True), decision.ASK_KEYS),
    (seen(decision.RESCUE, rearm=True, reinstall=True, keys_proven=False), decision.ATTACH),
    (seen(decision.INSTALLED), decision.LEAVE),
    (seen(decision.INSTALLED, rearm=True), decision.LEAVE),
    (seen(decision.INSTALLED, reinstall=True), decision.ARM_AND_REBOOT),
    (seen(decision.OTHER), decision.LEAVE),
    (seen(decision.OTHER, rearm=True), decision.LEAVE),
    (seen(decision.OTHER, rearm=True, reinstall=True), decision.CONTINUE),
    (seen(decision.OTHER, reinstall=True), decision.ARM_AND_REBOOT),
    (seen(decision.SILENT), decision.ASK_POWER),
    (seen(decision.SILENT, off=True), decision.ARM_AND_RESET),
    (seen(decision.SILENT, off=False), decision.REFUSE_LIVE),
    (seen(decision.SILENT, may_reset=True), decision.ARM_AND_RESET),
    (seen(decision.SILENT, rearm=True), decision.CONTINUE),
    (seen(decision.SILENT, reinstall=True), decision.ASK_POWER),
    (seen(decision.SILENT, reinstall=True, off=True), decision.ARM_AND_RESET),
    (seen(decision.SILENT, reinstall=True, off=False), decision.ARM_AND_RESET),
    (seen(decision.DENIED), decision.REFUSE_LIVE),
    (seen(decision.DENIED, may_reset=True), decision.ARM_AND_RESET),
    (seen(decision.DENIED, reinstall=True), decision.ARM_AND_RESET),
    (seen(decision.DENIED, rearm=True), decision.CONTINUE),
    (seen(decision.SILENT, proven=True), decision.REFUSE_SILENT),
    (seen(decision.DENIED, proven=True), decision.REFUSE_SILENT),
    (seen(decision.SILENT, proven=True, may_reset=True), decision.REFUSE_SILENT),
    (seen(decision.SILENT, proven=True, reinstall=True), decision.ASK_POWER),
    (seen(decision.SILENT, proven=True, reinstall=True, off=False), decision.ARM_AND_RESET),
    (seen(decision.SILENT, proven=True, rearm=True), decision.CONTINUE),
    (seen(decision.RESCUE, proven=True), decision.ASK_RESCUE),
    # a finished system that shows no more than an open port, or nothing, is never reset without consent
    (seen(decision.SILENT, unproven="port", listens=True), decision.LEAVE),
    (seen(decision.DENIED, unproven="port", listens=True), decision.LEAVE),
    (seen(decision.SILENT, unproven="port"), decision.REFUSE_SILENT),
    (seen(decision.SILENT, unproven="port", may_reset=True), decision.REFUSE_SILENT),
    (seen(decision.SILENT, unproven="none"), decision.ASK_POWER),
    (seen(decision.SILENT, unproven="none", off=False), decision.LEAVE),
    (seen(decision.SILENT, unproven="none", off=True), decision.REFUSE_SILENT),
    (seen(decision.DENIED, unproven="none", may_reset=True), decision.LEAVE),
    (seen(decision.DENIED, unproven="none", reinstall=True), decision.ARM_AND_RESET),
    (seen(decision.RESCUE, unproven="none", intended=""), decision.REFUSE_RESCUE),
    (seen(decision.INSTALLED, unproven="none"), decision.LEAVE),
]

OS_TABLE = [
    (seen(), decision.PROBE),
    (seen(decision.RESCUE), decision.LEAVE_RESCUE),
    (seen(decision.RESCUE, armed=True), decision.LEAVE_RESCUE),
    (seen(decision.OTHER, armed=True), decision.DISARM),
    (seen(decision.SILENT, armed=True), decision.DISARM),
    (seen(decision.OTHER), decision.LEAVE),
    (seen(decision.SILENT), decision.LEAVE),
]


@pytest.mark.parametrize(("state", "expected"), RESCUE_TABLE, ids=label)
def test_towards_rescue(state, expected):
    assert decision.towards_rescue(state) == expected


@pytest.mark.parametrize(("state", "expected"), OS_TABLE, ids=label)
def test_towards_os(state, expected):
    assert decision.towards_os(state) == expected


@pytest.mark.parametrize("answer", [decision.SILENT, decision.DENIED])
@pytest.mark.parametrize("proven", [True, False])
def test_a_server_that_may_be_in_use_is_not_reset(answer, proven):
    assert decision.towards_rescue(seen(answer, proven=proven, off=False)) not in ARMING


def test_every_state_has_a_step():
    for answer, reinstall, rearm, armed in itertools.product(ANSWERS, *[(True, False)] * 3):
        state = seen(answer, reinstall=reinstall, rearm=rearm, armed=armed)
        steps = (
            *ARMING,
            decision.ATTACH,
            decision.ASK_RESCUE,
            decision.ASK_KEYS,
            decision.LEAVE,
            decision.ASK_POWER,
            decision.REFUSE_LIVE,
        )
        assert decision.towards_rescue(state) in steps
        assert decision.towards_os(state) in (
            decision.DISARM,
            decision.LEAVE,
            decision.LEAVE_RESCUE,
        )


ALL = ["sw", "hw", "power", "power_long", "man"]


def escalate(offered, status=None, by_ssh=False, wol=False):
    """All types in their order, while what is known stays the same."""
    tried = []
    while True:
        kind = reset_escalation.next_reset_type(offered, tried, status, by_ssh=by_ssh, wol=wol)
        if kind is None:
            return tried
        tried.append(kind)


@pytest.mark.parametrize(
    ("offered", "more", "kinds"),
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
def test_from_gentle_to_hard(offered, more, kinds):
    assert escalate(offered, **more) == kinds


def test_a_later_call_goes_on_where_the_earlier_one_stood():
    assert reset_escalation.next_reset_type(ALL, ["sw"]) == "hw"
    assert reset_escalation.next_reset_type(ALL, ["ssh"], by_ssh=True) == "sw"
    assert reset_escalation.next_reset_type(ALL, ["hw"]) == "power"


@given(
    st.lists(st.sampled_from([*ALL, "unknown"]), unique=True),
    st.lists(st.sampled_from([None, "running", "shut off", "not supported"]), min_size=12, max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_no_escalation_sends_a_technician_holds_a_button_or_has_no_end(offered, statuses, by_ssh, wol):
    tried = []
    for status in statuses:
        kind = reset_escalation.next_reset_type(offered, tried, status, by_ssh=by_ssh, wol=wol)
        if kind is None:
            break
        assert kind in ("ssh", "sw", "hw", "power", "wol")
        assert kind in offered or kind in ("ssh", "wol")
        tried.append(kind)
    assert len(tried) <= 7
    assert all(tried.count(kind) <= (2 if kind in ("power", "hw") else 1) for kind in tried)


ARMED = {"machine": "n1", "installation": "0" * 32, "state": "open", "armed_at": text.to_rfc3339(time.time())}


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
def test_a_permission_of_the_first_contact_counts_until_a_run_has_ended(word, kept, used):
    why = contact_used("n1", word, kept)
    assert used in why
    assert bool(why) is bool(used)
