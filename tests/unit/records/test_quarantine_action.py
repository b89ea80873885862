# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""machine_quarantine as a play calls it: who is put in, kept out of a run and let out again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.kubenode.provision.plugins.action.machine_quarantine import ActionModule, Quarantine

SICK = {"name": "node-1", "failed": True, "permanent": True, "msg": "node-1: SMART says that nvme0n1 fails"}
WELL = {"name": "node-2", "failed": False}


@pytest.fixture
def call(tmp_path):
    """Call the action for these machines; the quarantine is a folder of this test."""

    def run(*machines: dict[str, Any], check_mode: bool = False, **given: Any) -> dict[str, Any]:
        arguments = {"machines": list(machines), "quarantine_dir": str(tmp_path / "quarantine"), **given}
        task = SimpleNamespace(
            action="machine_quarantine",
            args=arguments,
            async_val=0,
            check_mode=check_mode,
            collections=[],
            diff=False,
        )
        connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None), become=None)
        return ActionModule(task, connection, SimpleNamespace(), None, None, None).run(None, {})

    return run


@pytest.fixture
def known(tmp_path):
    return Quarantine(str(tmp_path / "quarantine"))


def test_a_machine_in_quarantine_fails_the_next_run_and_the_others_go_on(call, known):
    assert call(SICK, WELL, state="set")["changed"]
    answer = call({"name": "node-1"}, WELL)
    assert answer["failed"]
    assert answer["msg"].startswith("node-1: in quarantine since ")
    assert "SMART says that nvme0n1 fails" in answer["msg"]
    assert [(one["failed"], one["quarantined"]) for one in answer["machines"]] == [(True, True), (False, False)]
    assert known.entry("node-1") is not None


def test_the_machines_are_marked_where_the_play_goes_on(call):
    call(SICK, state="set")
    answer = call({"name": "node-1"}, WELL, on_error="report")
    assert not answer["failed"]
    assert [one["failed"] for one in answer["machines"]] == [True, False]


def test_only_a_named_machine_gets_out(call, known):
    call(SICK, {**SICK, "name": "node-3"}, state="set")
    answer = call({"name": "node-1"}, {"name": "node-3"}, clear=["node-1"], check_mode=True)
    assert [one["failed"] for one in answer["machines"]] == [False, True]
    assert known.entry("node-1") is not None, "check mode lets nothing out"
    assert call({"name": "node-1"}, {"name": "node-3"}, clear=["node-1"])["changed"]
    assert (known.entry("node-1") is None, known.entry("node-3") is None) == (True, False)
    assert not call({"name": "node-1"})["failed"]


@pytest.mark.parametrize("machine", [WELL, {**SICK, "permanent": False}, {**SICK, "failed": False}])
def test_only_a_permanent_failure_puts_a_machine_in(call, known, machine):
    assert not call(machine, state="set")["changed"]
    assert known.entry(machine["name"]) is None
