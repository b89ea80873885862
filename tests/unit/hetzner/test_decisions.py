# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables: what happens to a machine, given what is seen of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import (
    boot_decision,
    cloud_machines,
    cloud_rescue,
    robot_rescue,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_decision import ObservedState
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_servers import never_started
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.labels import ADOPTED_LABEL, LABEL, is_ours

OURS: dict[str, Any] = {"name": "n1", "status": "off", "labels": {LABEL: "n1", "pool": "a"}}
ADOPTED = {**OURS, "labels": {**OURS["labels"], ADOPTED_LABEL: "n1"}}
FOREIGN = {"name": "n1", "status": "running", "labels": {}}

ANSWERS = (
    boot_decision.RESCUE,
    boot_decision.INSTALLED,
    boot_decision.OTHER,
    boot_decision.SILENT,
    boot_decision.DENIED,
)
QUESTIONS = {boot_decision.SETTLE, boot_decision.ASK_HISTORY, boot_decision.PROBE}
HARMLESS = QUESTIONS | {boot_decision.ATTACH, boot_decision.LEAVE}


@pytest.mark.parametrize(
    ("state", "server", "adopt", "expected"),
    [
        ("present", None, False, cloud_machines.CREATE),
        ("present", OURS, False, cloud_machines.KEEP),
        ("present", {**OURS, "labels": {LABEL: "n1"}}, False, cloud_machines.RELABEL),
        ("present", {**OURS, "status": "deleting"}, False, cloud_machines.REFUSE),
        ("present", FOREIGN, False, cloud_machines.REFUSE),
        ("present", FOREIGN, True, cloud_machines.ADOPT),
        ("present", {**FOREIGN, "labels": {LABEL: "n2"}}, False, cloud_machines.REFUSE),
        ("absent", None, False, cloud_machines.KEEP),
        ("absent", OURS, False, cloud_machines.DELETE),
        ("absent", FOREIGN, False, cloud_machines.REFUSE),
        ("absent", FOREIGN, True, cloud_machines.REFUSE),
        ("absent", ADOPTED, False, cloud_machines.REFUSE),
        ("absent", ADOPTED, True, cloud_machines.REFUSE),
        ("present", ADOPTED, False, cloud_machines.KEEP),
        ("absent", {**OURS, "labels": {LABEL: "n1", ADOPTED_LABEL: ""}}, True, cloud_machines.REFUSE),
    ],
)
def test_machines(state, server, adopt, expected):
    assert cloud_machines.decide(state, server, {LABEL: "n1", "pool": "a"}, adopt) == expected


@pytest.mark.parametrize("server", [OURS, ADOPTED])
def test_a_server_that_is_protected_is_refused_before_it_is_taken_out_of_its_cluster(server):
    """hcloud_delete looks in check mode first; the API itself would only say it at the very end."""
    protected = {**server, "id": 7, "protection": {"delete": True, "rebuild": True}}
    assert cloud_machines.decide("absent", protected, {LABEL: "n1"}, False, delete=True) == "refuse"
    assert cloud_machines._refusal(protected, "absent", True) == (
        "server 'n1' (id 7) is protected against deletion; take the protection off, then run again"
    )
    assert cloud_machines.decide("present", protected, {LABEL: "n1"}, False) in ("keep", "relabel")


def test_the_protection_of_an_adopted_server_that_would_stay_is_not_to_be_taken_off():
    protected = {**ADOPTED, "id": 7, "protection": {"delete": True}}
    assert cloud_machines.decide("absent", protected, {LABEL: "n1"}, False) == "refuse"
    assert "name it in delete" in cloud_machines._refusal(protected, "absent", False)


@pytest.mark.parametrize(("server", "expected"), [(OURS, "delete"), (ADOPTED, "delete"), (FOREIGN, "refuse")])
@pytest.mark.parametrize("adopt", [True, False])
def test_a_name_in_delete_is_for_adopted_servers(server, adopt, expected):
    assert cloud_machines.decide("absent", server, {LABEL: "n1"}, adopt, delete=True) == expected
    # another installation than the one that was named
    assert cloud_machines.decide("absent", server, {LABEL: "n1"}, adopt, delete=False) == "refuse"


@pytest.mark.parametrize(
    ("server", "expected"),
    [(OURS, True), (FOREIGN, False), ({"name": "n1", "labels": None}, False), ({**OURS, "name": "n2"}, False)],
)
def test_whose_server_it_is(server, expected):
    assert is_ours(server) is expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["create_server"], True),
        (["create_server", "enable_rescue"], True),
        (["create_server", "start_server"], False),
        (["create_server", "rebuild_server"], False),
        (["enable_rescue"], False),
        ([], False),
    ],
)
def test_never_started_needs_a_history_from_the_beginning(commands, expected):
    assert never_started([{"command": command, "status": "success"} for command in commands]) is expected


def test_a_start_that_failed_is_no_start():
    history = [{"command": "start_server", "status": "error"}, {"command": "create_server", "status": "success"}]
    assert never_started(history)


RESCUE_TABLE = [
    (ObservedState("off"), boot_decision.ASK_HISTORY),
    (ObservedState("off", never_started=True), boot_decision.ARM_AND_START),
    (ObservedState("off", never_started=False), boot_decision.REFUSE_STARTED),
    (ObservedState("off", reinstall=True), boot_decision.ARM_AND_START),
    (ObservedState("off", rearm=True, armed=True), boot_decision.START),
    (ObservedState("off", rearm=True), boot_decision.ARM_AND_START),
    (ObservedState("off", ours=False, never_started=True), boot_decision.REFUSE_FOREIGN),
    (ObservedState("running"), boot_decision.PROBE),
    (ObservedState("running", answer=boot_decision.RESCUE), boot_decision.ASK_RESCUE),
    (ObservedState("running", answer=boot_decision.RESCUE, intended="fresh"), boot_decision.ATTACH),
    (ObservedState("running", answer=boot_decision.RESCUE, intended=""), boot_decision.REFUSE_RESCUE),
    (ObservedState("running", answer=boot_decision.RESCUE, rearm=True), boot_decision.ATTACH),
    (ObservedState("running", answer=boot_decision.INSTALLED), boot_decision.LEAVE),
    (ObservedState("running", answer=boot_decision.OTHER), boot_decision.LEAVE),
    (ObservedState("running", answer=boot_decision.SILENT), boot_decision.REFUSE_SILENT),
    (ObservedState("running", answer=boot_decision.DENIED), boot_decision.REFUSE_DENIED),
    (ObservedState("running", answer=boot_decision.OTHER, reinstall=True), boot_decision.ARM_AND_REBOOT),
    (ObservedState("running", answer=boot_decision.INSTALLED, reinstall=True), boot_decision.ARM_AND_REBOOT),
    (ObservedState("running", answer=boot_decision.SILENT, reinstall=True), boot_decision.ARM_AND_RESET),
    (ObservedState("running", answer=boot_decision.RESCUE, reinstall=True), boot_decision.ATTACH),
    (ObservedState("running", answer=boot_decision.OTHER, rearm=True, fresh=True), boot_decision.ARM_AND_RESET),
    (ObservedState("running", answer=boot_decision.OTHER, rearm=True, reinstall=True), boot_decision.ARM_AND_REBOOT),
    (ObservedState("running", answer=boot_decision.OTHER, rearm=True), boot_decision.LEAVE),
    (ObservedState("running", answer=boot_decision.SILENT, rearm=True, armed=True), boot_decision.RESET),
    (ObservedState("running", answer=boot_decision.INSTALLED, rearm=True, armed=True), boot_decision.LEAVE),
    (ObservedState("initializing"), boot_decision.SETTLE),
    (ObservedState("starting"), boot_decision.SETTLE),
    (ObservedState("deleting"), boot_decision.REFUSE_STATUS),
]

DISARMED_TABLE = [
    (ObservedState("running", armed=True, armed_here=True), boot_decision.DISARM),
    (ObservedState("off", armed=True, armed_here=True), boot_decision.DISARM),
    (ObservedState("running", armed=True), boot_decision.LEAVE),
    (ObservedState("running", armed_here=True), boot_decision.LEAVE),
    (ObservedState("starting", armed=True, armed_here=True), boot_decision.SETTLE),
    (ObservedState("running", armed=True, armed_here=True, ours=False), boot_decision.REFUSE_FOREIGN),
]

OS_TABLE = [
    (ObservedState("off"), boot_decision.LEAVE),
    (ObservedState("off", armed=True), boot_decision.DISARM),
    (ObservedState("running"), boot_decision.PROBE),
    (ObservedState("running", answer=boot_decision.RESCUE), boot_decision.LEAVE_RESCUE),
    (ObservedState("running", answer=boot_decision.OTHER), boot_decision.LEAVE),
    (ObservedState("running", answer=boot_decision.OTHER, armed=True), boot_decision.DISARM),
    (ObservedState("running", answer=boot_decision.SILENT), boot_decision.REFUSE_SILENT),
    (ObservedState("running", answer=boot_decision.DENIED), boot_decision.REFUSE_DENIED),
    (ObservedState("running", answer=boot_decision.RESCUE, ours=False), boot_decision.REFUSE_FOREIGN),
    (ObservedState("deleting"), boot_decision.REFUSE_STATUS),
]


def label(value):
    return (
        " ".join(f"{name}={field}" for name, field in vars(value).items() if field)
        if isinstance(value, ObservedState)
        else value
    )


@pytest.mark.parametrize(("state", "expected"), RESCUE_TABLE, ids=label)
def test_towards_rescue(state, expected):
    assert boot_decision.towards_rescue(state) == expected


@pytest.mark.parametrize(("state", "expected"), DISARMED_TABLE, ids=label)
def test_only_what_this_run_enabled_is_disabled(state, expected):
    assert boot_decision.towards_disarmed(state) == expected


@pytest.mark.parametrize(("state", "expected"), OS_TABLE, ids=label)
def test_towards_os(state, expected):
    assert boot_decision.towards_os(state) == expected


def every_state(**fixed):
    statuses = ("off", "running", "deleting", *boot_decision.PASSING)
    for status, ours, reinstall, rearm, armed, fresh, answer in itertools.product(
        statuses, (True, False), (True, False), (True, False), (True, False), (None, True, False), (None, *ANSWERS)
    ):
        values = {
            "status": status,
            "ours": ours,
            "reinstall": reinstall,
            "rearm": rearm,
            "armed": armed,
            "never_started": fresh,
            "answer": answer,
        }
        if all(values[key] == value for key, value in fixed.items()):
            yield ObservedState(**values)


def test_nothing_that_may_hold_something_is_touched_without_consent():
    for state in every_state(reinstall=False, rearm=False):
        step = boot_decision.towards_rescue(state)
        if step == boot_decision.ARM_AND_START:
            assert state.never_started
            assert state.ours
            assert state.status == "off"
        else:
            assert step in (*HARMLESS, boot_decision.ASK_RESCUE) or step.startswith("refuse")
            # a person may be at work there
            assert step != boot_decision.ATTACH


def test_an_installed_machine_is_never_rearmed():
    for state in every_state(reinstall=False, answer=boot_decision.INSTALLED, status="running"):
        assert boot_decision.towards_rescue(state) in (boot_decision.LEAVE, boot_decision.REFUSE_FOREIGN)


def test_every_question_is_asked_only_while_its_answer_is_missing():
    for table in (boot_decision.towards_rescue, boot_decision.towards_os):
        for state in every_state():
            step = table(state)
            assert step != boot_decision.PROBE or state.answer is None
            assert step != boot_decision.ASK_HISTORY or state.never_started is None
            assert step != boot_decision.SETTLE or state.status in boot_decision.PASSING


@pytest.mark.parametrize("status", [None, "off", "running", "starting", "deleting"])
def test_every_step_is_one_that_the_flow_of_its_provider_can_carry_out(status):
    """What the table may answer, and what a flow calls for it: nothing is looked up by a name that is put together."""
    flow = object.__new__(robot_rescue.RobotFlow if status is None else cloud_rescue.CloudFlow)
    known = {*flow.own_steps(), boot_decision.PROBE, boot_decision.ASK_RESCUE, boot_decision.ATTACH}
    known |= {boot_decision.LEAVE, boot_decision.DISARM, boot_decision.LEAVE_RESCUE}
    towards = (boot_decision.towards_rescue, boot_decision.towards_os, boot_decision.towards_disarmed)
    flags = ("ours", "reinstall", "rearm", "fresh", "proven", "may_reset", "listens", "armed_here")
    for values in itertools.product(*[(True, False)] * len(flags)):
        for answer, armed, unproven, off in itertools.product(
            (None, *ANSWERS), (None, True, False), ("", "none", "port"), (None, True, False)
        ):
            more = {"armed": armed, "unproven": unproven, "off": off, **dict(zip(flags, values, strict=True))}
            more["keys_proven"] = off  # asked of a rescue, the other of a machine that is silent
            if status is not None and armed is None:
                continue  # a cloud server always says it
            state = ObservedState(status, answer, **more)
            steps = {table(state) for table in towards}
            assert all(step in known or step.startswith("refuse") for step in steps)
