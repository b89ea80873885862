# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in quarantine stays there until a user releases it, whatever happens to its file."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.action.machine_quarantine import Entry, Quarantine, QuarantineError

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
