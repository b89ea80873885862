# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in quarantine stays there until a user releases it, whatever happens to its file."""

from __future__ import annotations

import stat
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.action.machine_quarantine import (
    ActionModule,
    Entry,
    Quarantine,
    QuarantineError,
)

SINCE = "2026-11-21T10:00:00.000Z"


@pytest.fixture
def quarantine(tmp_path):
    return Quarantine(str(tmp_path / "quarantine"))


def test_no_machine_is_in_a_quarantine_that_does_not_exist(quarantine, tmp_path):
    assert quarantine.entry("node-1") is None
    quarantine.clear("node-1")
    assert not (tmp_path / "quarantine").exists()


def test_the_first_reason_stays(quarantine):
    first = Entry("node-1", "SMART says that nvme0n1 fails", SINCE)
    assert quarantine.add(first)
    assert not quarantine.add(Entry("node-1", "another reason", "2026-11-22T10:00:00.000Z"))
    assert quarantine.entry("node-1") == first
    assert quarantine.entry("node-2") is None


def test_out_and_in_again(quarantine):
    quarantine.add(Entry("node-1", "old", SINCE))
    quarantine.clear("node-1")
    assert quarantine.entry("node-1") is None
    assert quarantine.add(Entry("node-1", "new", SINCE))
    assert quarantine.entry("node-1").reason == "new"


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"reason": "half"}'])
def test_a_damaged_file_keeps_its_machine_in(quarantine, tmp_path, content):
    (tmp_path / "quarantine").mkdir()
    (tmp_path / "quarantine/node-1.json").write_text(content)
    assert "damaged" in quarantine.entry("node-1").reason


def test_only_we_read_the_file(quarantine, tmp_path):
    quarantine.add(Entry("node-1", "reason", SINCE))
    assert stat.S_IMODE((tmp_path / "quarantine").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "quarantine/node-1.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../node", "a/b", "", ".", "node 1"])
def test_a_name_is_no_path(quarantine, name):
    with pytest.raises(QuarantineError):
        quarantine.add(Entry(name, "reason", SINCE))


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(QuarantineError, match="Not a directory"):
        Quarantine(str(tmp_path / "file" / "quarantine")).add(Entry("node-1", "reason", SINCE))


@given(st.text(max_size=300))
def test_any_reason_comes_back_as_one_line(tmp_path_factory, reason):
    quarantine = Quarantine(str(tmp_path_factory.mktemp("quarantine")))
    quarantine.add(Entry("node-1", reason, SINCE))
    assert len(quarantine.entry("node-1").reason.splitlines()) <= 1


# --- machine_quarantine as a play calls it: who is put in, kept out of a run and let out again


SICK = {"name": "node-1", "failed": True, "permanent": True, "msg": "node-1: SMART says that nvme0n1 fails"}
WELL = {"name": "node-2", "failed": False}


@pytest.fixture
def call(tmp_path):
    """Call the action for these machines; the quarantine is a folder of this test."""

    def run(*machines: dict[str, Any], check_mode: bool = False, **given: Any) -> dict[str, Any]:
        arguments = {"machines": list(machines), "quarantine_dir": str(tmp_path / "quarantine"), **given}
        task = SimpleNamespace(
            action="machine_quarantine", args=arguments, async_val=0, check_mode=check_mode, collections=[], diff=False
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


def test_who_puts_machines_in_says_so_and_how_they_get_out(call):
    assert "warnings" not in call(SICK, WELL, state="set", check_mode=True)
    (warning,) = call(SICK, {**SICK, "name": "node-3"}, WELL, state="set")["warnings"]
    assert warning.startswith("node-1, node-3: in quarantine now")
    assert warning.endswith("""-e '{"kubenode_clear_quarantine": ["node-1", "node-3"]}'""")
    assert "warnings" not in call(SICK, WELL, state="set")


@pytest.mark.parametrize("machine", [WELL, {**SICK, "permanent": False}, {**SICK, "failed": False}])
def test_only_a_permanent_failure_puts_a_machine_in(call, known, machine):
    assert not call(machine, state="set")["changed"]
    assert known.entry(machine["name"]) is None
