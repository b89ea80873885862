# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims: exactly the claimed disks of the same machine, for a day, in a file that no other user can read."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import claims

DISKS = [{"serial": "S1", "wwn": "eui.00A1", "name": "nvme0n1"}, {"serial": "S2", "wwn": "eui.00a2"}]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "claims" / "node-1.json")


def test_what_was_claimed_is_covered_under_any_kernel_name(path):
    assert claims.claim(path, "node-1", DISKS)
    assert claims.covers(path, "node-1", [dict(disk, name="sdx") for disk in reversed(DISKS)])


@pytest.mark.parametrize(
    ("machine", "disks"),
    [
        ("node-2", DISKS),
        ("node-1", DISKS[:1]),
        ("node-1", [*DISKS, {"serial": "S3", "wwn": ""}]),
        ("node-1", [DISKS[0], {"serial": "S2", "wwn": "eui.00a3"}]),
        ("node-1", [DISKS[0], {"serial": "S3", "wwn": "eui.00a2"}]),
        ("node-1", []),
    ],
)
def test_other_disks_and_machines_are_not_covered(path, machine, disks):
    claims.claim(path, "node-1", DISKS)
    assert not claims.covers(path, machine, disks)


def test_no_claim_no_cover(path):
    assert not claims.covers(path, "node-1", DISKS)


@pytest.mark.parametrize("disks", [[{"serial": "", "wwn": ""}], [{"name": "sda"}], [DISKS[0], DISKS[0]], []])
def test_disks_that_cannot_be_distinguished_are_never_claimed(path, disks):
    claims.claim(path, "node-1", DISKS)
    assert not claims.claim(path, "node-1", disks)
    assert not claims.covers(path, "node-1", disks)
    assert not claims.covers(path, "node-1", DISKS), "the claim before it has been taken back"


@pytest.mark.parametrize(("later", "counts"), [(0, True), (23.9 * 3600, True), (24.1 * 3600, False), (-3600, False)])
def test_a_claim_counts_for_a_day(path, later, counts):
    claims.claim(path, "node-1", DISKS, now=lambda: 1_000_000.0)
    assert bool(claims.claimed(path, "node-1", now=lambda: 1_000_000.0 + later)) is counts


def test_release_ends_it(path):
    claims.claim(path, "node-1", DISKS)
    assert claims.release(path)
    assert not claims.covers(path, "node-1", DISKS)
    assert not claims.release(path)


def test_the_file_is_ours_alone_and_as_the_contract_says(path, tmp_path):
    claims.claim(path, "node-1", DISKS)
    assert stat.S_IMODE((tmp_path / "claims" / "node-1.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "claims").stat().st_mode) == 0o700
    content = json.loads((tmp_path / "claims" / "node-1.json").read_text())
    assert sorted(content) == ["at", "begun", "disks", "machine"]
    assert content["disks"] == [{"serial": "S1", "wwn": "eui.00a1"}, {"serial": "S2", "wwn": "eui.00a2"}]
    assert [entry.name for entry in (tmp_path / "claims").iterdir()] == ["node-1.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        '{"machine": "node-1"}',
        '{"machine": "node-1", "at": "yesterday", "disks": []}',
        '{"machine": "node-1", "at": 5, "disks": [{"serial": "S1", "wwn": "eui.00a1"}]}',
        '{"machine": "node-1", "at": "2026-11-21T10:00:00Z", "disks": 7}',
        '{"machine": "node-1", "at": "2026-11-21T10:00:00Z", "disks": ["S1"]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_claim_is_none(path, tmp_path, text):
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "node-1.json").write_text(text)
    assert claims.claimed(path, "node-1", lambda: 1795255201.0) == frozenset()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "claims").write_text("a file where the folder should be")
    with pytest.raises(claims.ClaimError, match=r"claim_file .*node-1\.json"):
        claims.claim(str(tmp_path / "claims" / "node-1.json"), "node-1", DISKS)


@pytest.mark.parametrize("begun", [True, False])
def test_what_a_refused_run_claimed_is_forgotten_and_what_was_begun_is_kept(path, begun):
    assert not claims.release_unbegun(path)
    claims.claim(path, "node-1", DISKS, begun=begun)
    assert claims.release_unbegun(path) is not begun
    assert claims.covers(path, "node-1", DISKS) is begun


def _intent(path):
    made = intents.make("node-1", installed.new_installation(), "wipe")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    intents.write(path, made)


def test_a_claim_counts_from_the_start_of_what_may_write(path):
    _intent(path)
    claims.claim(path, "node-1", DISKS, begun=False)
    assert not claims.covers(path, "node-1", DISKS)
    before = claims.note_begun(path, surely=False)
    assert claims.covers(path, "node-1", DISKS), "it may be killed in the middle of it"
    claims.take_back(path, before)
    assert not claims.covers(path, "node-1", DISKS), "it said that it was not started"


@pytest.mark.parametrize(("says_no", "kept"), [(True, False), (False, True)])
def test_what_may_have_begun_ends_by_its_own_report_alone(path, says_no, kept):
    _intent(path)
    claims.claim(path, "node-1", DISKS, begun=False)
    claims.note_begun(path, surely=False)
    claims.release_unbegun(path, maybe=says_no)
    assert claims.covers(path, "node-1", DISKS) is kept


def test_what_has_begun_stays_so(path):
    _intent(path)
    claims.claim(path, "node-1", DISKS, begun=False)
    claims.note_begun(path)
    before = claims.note_begun(path, surely=False)
    claims.take_back(path, before)
    claims.release_unbegun(path, maybe=True)
    claims.claim(path, "node-1", DISKS, begun=claims.begun(path))
    assert claims.covers(path, "node-1", DISKS)
    claims.release(path)
    assert not claims.covers(path, "node-1", DISKS)
    assert "begun" not in intents.read(path)


def test_a_start_without_an_open_intent_is_not_noted(path):
    assert claims.note_begun(path) is False
    claims.take_back(path, False)
    assert not Path(path).exists()
    claims.claim(path, "node-1", DISKS, begun=False)
    claims.note_begun(path)
    assert not claims.covers(path, "node-1", DISKS)
    assert not claims.is_of_intent(path)


def test_a_claim_that_does_not_say_whether_it_has_begun_is_none(path):
    claims.claim(path, "node-1", DISKS)
    content = json.loads(Path(path).read_text())
    del content["begun"]
    Path(path).write_text(json.dumps(content))
    assert not claims.covers(path, "node-1", DISKS)


def test_an_open_intent_outlives_what_a_refused_run_claimed(path):
    _intent(path)
    before = intents.read(path)
    claims.claim(path, "node-1", DISKS, begun=False)
    claims.release_unbegun(path)
    assert intents.read(path) == before
