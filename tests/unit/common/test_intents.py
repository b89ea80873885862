# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What identifies the installation of a system that has no record."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents


@pytest.mark.parametrize(
    ("state", "machine", "stands"),
    [
        (intents.OPEN, "n1", False),
        (intents.DONE, "n1", False),
        (intents.SEEN, "n1", True),
        (intents.GIVEN_UP, "n1", True),
        (intents.GIVEN_UP, "n2", False),
    ],
)
def test_an_installation_without_proof_can_be_named_by_its_id(state, machine, stands):
    kept = intents.make(machine, installed.new_installation(), "fresh")
    kept.update(state=state, holds=["8F1c-uuid", "other"])
    found = intents.record_or_kept(None, kept, "n1", ["8f1C-uuid"])
    assert (installed.installation_of(found) == kept["installation"]) is stands


@pytest.mark.parametrize(("holds", "uuids"), [(["a"], ["b"]), (["a"], []), (None, ["None"]), ("ab", ["a"]), ([], [])])
def test_a_system_that_others_put_there_since_has_no_name(holds, uuids):
    kept = {**intents.make("n1", installed.new_installation(), "fresh"), "state": intents.GIVEN_UP, "holds": holds}
    assert intents.record_or_kept(None, kept, "n1", uuids) is None


@pytest.mark.parametrize("state", [intents.OPEN, intents.GIVEN_UP])
def test_what_a_command_left_is_noted_while_the_intent_is_open(tmp_path, state):
    path = str(tmp_path / "n1.json")
    intents.write(path, {**intents.make("n1", installed.new_installation(), "fresh"), "state": state})
    intents.note_written(path, [{"holds": ["b", "a"]}, {"holds": ["a"]}], succeeded=True)
    assert intents.read(path).get("holds") == (["a", "b"] if state == intents.OPEN else None)
    intents.note_written(str(tmp_path / "none.json"), [], succeeded=True)
    assert not (tmp_path / "none.json").exists()


def test_the_record_of_the_system_says_more_than_an_old_intent():
    kept = {**intents.make("n1", installed.new_installation(), "fresh"), "state": intents.GIVEN_UP}
    record = {"installation": installed.new_installation(), "machine": "n1"}
    assert intents.record_or_kept(record, kept, "n1", []) == record
    assert intents.record_or_kept(None, None, "n1", []) is None
