# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables: what happens to a machine, given what is seen of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import machines, sights
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.servers import (
    ADOPTED_LABEL,
    LABEL,
    is_ours,
    never_started,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.sights import Sight

OURS: dict[str, Any] = {"name": "n1", "status": "off", "labels": {LABEL: "n1", "pool": "a"}}
ADOPTED = {**OURS, "labels": {**OURS["labels"], ADOPTED_LABEL: "n1"}}
FOREIGN = {"name": "n1", "status": "running", "labels": {}}

ANSWERS = (sights.RESCUE, sights.INSTALLED, sights.OTHER, sights.SILENT, sights.DENIED)
QUESTIONS = {sights.SETTLE, sights.ASK_HISTORY, sights.PROBE}
HARMLESS = QUESTIONS | {sights.ATTACH, sights.LEAVE}


@pytest.mark.parametrize(
    ("state", "server", "adopt", "expected"),
    [
        ("present", None, False, machines.CREATE),
        ("present", OURS, False, machines.KEEP),
        ("present", {**OURS, "labels": {LABEL: "n1"}}, False, machines.RELABEL),
        ("present", {**OURS, "status": "deleting"}, False, machines.REFUSE),
        ("present", FOREIGN, False, machines.REFUSE),
        ("present", FOREIGN, True, machines.ADOPT),
        ("present", {**FOREIGN, "labels": {LABEL: "n2"}}, False, machines.REFUSE),
        ("absent", None, False, machines.KEEP),
        ("absent", OURS, False, machines.DELETE),
        ("absent", FOREIGN, False, machines.REFUSE),
        ("absent", FOREIGN, True, machines.REFUSE),
        ("absent", ADOPTED, False, machines.REFUSE),
        ("absent", ADOPTED, True, machines.REFUSE),
        ("present", ADOPTED, False, machines.KEEP),
        ("absent", {**OURS, "labels": {LABEL: "n1", ADOPTED_LABEL: ""}}, True, machines.REFUSE),
    ],
)
def test_machines(state, server, adopt, expected):
    assert machines.decide(state, server, {LABEL: "n1", "pool": "a"}, adopt) == expected


@pytest.mark.parametrize(("server", "expected"), [(OURS, "delete"), (ADOPTED, "delete"), (FOREIGN, "refuse")])
@pytest.mark.parametrize("adopt", [True, False])
def test_a_name_in_delete_is_for_adopted_servers(server, adopt, expected):
    assert machines.decide("absent", server, {LABEL: "n1"}, adopt, delete=True) == expected
    # another installation than the one that was named
    assert machines.decide("absent", server, {LABEL: "n1"}, adopt, delete=False) == "refuse"


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
    (Sight("off"), sights.ASK_HISTORY),
    (Sight("off", never_started=True), sights.ARM_AND_START),
    (Sight("off", never_started=False), sights.REFUSE_STARTED),
    (Sight("off", reinstall=True), sights.ARM_AND_START),
    (Sight("off", rearm=True, armed=True), sights.START),
    (Sight("off", rearm=True), sights.ARM_AND_START),
    (Sight("off", ours=False, never_started=True), sights.REFUSE_FOREIGN),
    (Sight("running"), sights.PROBE),
    (Sight("running", answer=sights.RESCUE), sights.ASK_RESCUE),
    (Sight("running", answer=sights.RESCUE, intended="fresh"), sights.ATTACH),
    (Sight("running", answer=sights.RESCUE, intended=""), sights.REFUSE_RESCUE),
    (Sight("running", answer=sights.RESCUE, rearm=True), sights.ATTACH),
    (Sight("running", answer=sights.INSTALLED), sights.LEAVE),
    (Sight("running", answer=sights.OTHER), sights.LEAVE),
    (Sight("running", answer=sights.SILENT), sights.REFUSE_SILENT),
    (Sight("running", answer=sights.DENIED), sights.REFUSE_DENIED),
    (Sight("running", answer=sights.OTHER, reinstall=True), sights.ARM_AND_REBOOT),
    (Sight("running", answer=sights.INSTALLED, reinstall=True), sights.ARM_AND_REBOOT),
    (Sight("running", answer=sights.SILENT, reinstall=True), sights.ARM_AND_RESET),
    (Sight("running", answer=sights.RESCUE, reinstall=True), sights.ATTACH),
    (Sight("running", answer=sights.OTHER, rearm=True, fresh=True), sights.ARM_AND_RESET),
    (Sight("running", answer=sights.OTHER, rearm=True, reinstall=True), sights.ARM_AND_REBOOT),
    (Sight("running", answer=sights.OTHER, rearm=True), sights.LEAVE),
    (Sight("running", answer=sights.SILENT, rearm=True, armed=True), sights.RESET),
    (Sight("running", answer=sights.INSTALLED, rearm=True, armed=True), sights.LEAVE),
    (Sight("initializing"), sights.SETTLE),
    (Sight("starting"), sights.SETTLE),
    (Sight("deleting"), sights.REFUSE_STATUS),
]

DISARMED_TABLE = [
    (Sight("running", armed=True, armed_here=True), sights.DISARM),
    (Sight("off", armed=True, armed_here=True), sights.DISARM),
    (Sight("running", armed=True), sights.LEAVE),
    (Sight("running", armed_here=True), sights.LEAVE),
    (Sight("starting", armed=True, armed_here=True), sights.SETTLE),
    (Sight("running", armed=True, armed_here=True, ours=False), sights.REFUSE_FOREIGN),
]

OS_TABLE = [
    (Sight("off"), sights.LEAVE),
    (Sight("off", armed=True), sights.DISARM),
    (Sight("running"), sights.PROBE),
    (Sight("running", answer=sights.RESCUE), sights.LEAVE_RESCUE),
    (Sight("running", answer=sights.OTHER), sights.LEAVE),
    (Sight("running", answer=sights.OTHER, armed=True), sights.DISARM),
    (Sight("running", answer=sights.SILENT), sights.REFUSE_SILENT),
    (Sight("running", answer=sights.DENIED), sights.REFUSE_DENIED),
    (Sight("running", answer=sights.RESCUE, ours=False), sights.REFUSE_FOREIGN),
    (Sight("deleting"), sights.REFUSE_STATUS),
]


def label(value):
    return " ".join("%s=%s" % item for item in vars(value).items() if item[1]) if isinstance(value, Sight) else value


@pytest.mark.parametrize(("sight", "expected"), RESCUE_TABLE, ids=label)
def test_towards_rescue(sight, expected):
    assert sights.towards_rescue(sight) == expected


@pytest.mark.parametrize(("sight", "expected"), DISARMED_TABLE, ids=label)
def test_only_what_this_run_enabled_is_disabled(sight, expected):
    assert sights.towards_disarmed(sight) == expected


@pytest.mark.parametrize(("sight", "expected"), OS_TABLE, ids=label)
def test_towards_os(sight, expected):
    assert sights.towards_os(sight) == expected


def every_sight(**fixed):
    statuses = ("off", "running", "deleting", *sights.PASSING)
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
            yield Sight(**values)


def test_nothing_that_may_hold_something_is_touched_without_consent():
    for sight in every_sight(reinstall=False, rearm=False):
        step = sights.towards_rescue(sight)
        if step == sights.ARM_AND_START:
            assert sight.never_started
            assert sight.ours
            assert sight.status == "off"
        else:
            assert step in (*HARMLESS, sights.ASK_RESCUE) or step.startswith("refuse")
            # somebody may be at work there
            assert step != sights.ATTACH


def test_an_installed_machine_is_never_rearmed():
    for sight in every_sight(reinstall=False, answer=sights.INSTALLED, status="running"):
        assert sights.towards_rescue(sight) in (sights.LEAVE, sights.REFUSE_FOREIGN)


def test_every_question_is_asked_only_while_its_answer_is_missing():
    for table in (sights.towards_rescue, sights.towards_os):
        for sight in every_sight():
            step = table(sight)
            assert step != sights.PROBE or sight.answer is None
            assert step != sights.ASK_HISTORY or sight.never_started is None
            assert step != sights.SETTLE or sight.status in sights.PASSING
