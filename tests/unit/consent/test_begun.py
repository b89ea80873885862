# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lets a command write in a rescue: a word that still covers the disks, or a start there that may have written."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, job, protocol, targets

MACHINE, MINE, OTHER = "n1", "a" * 32, "b" * 32
OLD = {"installation": OTHER, "consent": "reinstall", "installed_at": "T"}


def one_disk(monkeypatch, holds, wipe):
    """The rescue has the disk sda, which holds this."""
    monkeypatch.setattr(targets, "look_at_disks", lambda *_given, **_more: {"disks": [{"name": "sda", "holds": holds}]})
    monkeypatch.setattr(targets.disk_gather, "read", lambda *_given, **_more: None)
    monkeypatch.setattr(targets.disk_gather, "identities", lambda _tools: [{"name": "sda"}])
    monkeypatch.setattr(targets.wiping, "wipe", wipe)


def job_of(intent, consent, **more):
    """A job for sda of this intent."""
    installation = intent["installation"]
    return job.Job(
        b"", b"", ["url", MACHINE], "", 60, "", "", installation, ["sda"], consent, intent=json.dumps(intent), **more
    )


@pytest.fixture
def rescue(tmp_path, monkeypatch):
    """One disk with a system; what became of it is in the list."""
    (tmp_path / protocol.STATE_DIR).mkdir(parents=True)
    done = []
    holds = [{"kind": "system", "disks": ["sda"], "system": "Debian", "installed": OLD}]
    monkeypatch.setattr(targets.disk_facts, "held", lambda _disk: ["a system"])

    def wipe(_tools, _disks):
        intent = json.loads((tmp_path / protocol.INTENT).read_text())
        assert intent["begun"] is True, "who comes after a cut would not know"
        done.append("emptied")

    one_disk(monkeypatch, holds, wipe)

    def prepare(consent, installation=MINE, **more):
        wanted = job_of(intents.make(MACHINE, installation, "reinstall"), consent, **more)
        targets.prepare(lambda *_given, **_more: (0, "", ""), wanted, str(tmp_path))
        return wanted.consent

    prepare.done = done
    prepare.base = tmp_path
    return prepare


def test_the_run_that_was_allowed_writes(rescue):
    assert rescue("reinstall") == "reinstall"
    assert rescue.done == ["emptied"]


def test_a_later_run_needs_a_word(rescue):
    with pytest.raises(job.JobError, match="nothing was written"):
        rescue("empty")
    assert rescue.done == []
    assert not (rescue.base / protocol.INTENT).exists()


def test_what_was_begun_in_this_rescue_goes_on_and_uses_up_the_word(rescue):
    rescue("reinstall")
    assert rescue("empty") == "reinstall"
    assert rescue("empty") == "reinstall"
    assert rescue.done == ["emptied"] * 3
    with pytest.raises(job.JobError):
        rescue("empty", installed.new_installation())


@pytest.mark.parametrize("begun", [None, False, "maybe"])
def test_an_intent_that_was_only_brought_there_is_no_consent(rescue, begun):
    intent = dict(intents.make(MACHINE, MINE, "reinstall"), begun=begun)
    (rescue.base / protocol.INTENT).write_text(json.dumps(intent))
    with pytest.raises(job.JobError, match="nothing was written"):
        rescue("empty")


def test_a_permission_that_the_installation_on_the_disk_used_up_does_not_count(rescue):
    with pytest.raises(job.JobError, match="this was used"):
        rescue("named", reinstall=[MACHINE])
    assert rescue("named", reinstall={MACHINE: OTHER[:8]}) == "reinstall"


@pytest.mark.parametrize("earlier", [None, "{}"])
def test_an_emptying_that_changed_nothing_has_not_begun(rescue, monkeypatch, earlier):
    def refuse(_tools, _disks):
        raise targets.wiping.WipeError("it is in use", False)

    monkeypatch.setattr(targets.wiping, "wipe", refuse)
    if earlier is not None:
        (rescue.base / protocol.INTENT).write_text(earlier)
    with pytest.raises(job.JobError, match="in use") as caught:
        rescue("reinstall")
    assert caught.value.begun is False
    kept = rescue.base / protocol.INTENT
    assert (kept.read_text() if kept.exists() else None) == earlier
    with pytest.raises(job.JobError, match="nothing was written"):
        rescue("empty")


def test_an_image_that_cannot_be_fetched_is_no_beginning(rescue, monkeypatch):
    def refuse(_url, _token):
        raise image_url.NotFetchable("it cannot be fetched")

    monkeypatch.setattr(image_url, "check_fetchable", refuse)
    with pytest.raises(job.JobError, match="No disk was touched"):
        rescue("reinstall")
    assert (rescue.done, (rescue.base / protocol.INTENT).exists()) == ([], False)


TARGET = {"name": "sda", "serial": "S1", "wwn": "0x1", "size": 9, "model": "m", "content_id": "0" * 8}


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({}, None),
        ({"content_id": "1" * 8}, "does not hold any more what was found before"),
        ({"serial": "S2"}, "is not there any more"),
        ({"name": "sdb"}, "is called sdb by now, and was sda"),
        # not of what blkid sees, of which content_id is made
        ({"holds": [{"kind": "unknown", "detail": "data of an unknown kind"}]}, "sda is not empty any more.*\n  a"),
    ],
)
def test_a_disk_that_was_found_empty_is_looked_at_again_before_it_is_written(rescue, monkeypatch, now, reason):
    monkeypatch.setattr(targets.disk_facts, "facts", lambda _raw: [{**TARGET, "holds": [], **now}])
    if reason is None:
        assert rescue("checked+empty", still_empty=[TARGET]) == "empty"
        return
    with pytest.raises(job.JobError, match=reason) as caught:
        rescue("checked+empty", still_empty=[TARGET])
    assert (caught.value.begun, rescue.done, (rescue.base / protocol.INTENT).exists()) == (False, [], False)


def test_a_disk_that_was_found_empty_is_looked_at_again_when_others_were_emptied(rescue, monkeypatch):
    """Emptying waits for locks; nothing of ours is on any disk then, so the next run may write none of them."""
    seen = {**TARGET, "holds": []}
    monkeypatch.setattr(targets.disk_facts, "facts", lambda _raw: [dict(seen)])
    monkeypatch.setattr(targets, "empty_disks", lambda *_given: seen.update(content_id="1" * 8))
    monkeypatch.setattr(image_url, "check_fetchable", lambda *_given: None)
    with pytest.raises(job.JobError, match="does not hold any more what was found before") as caught:
        rescue("checked+wipe", still_empty=[TARGET], empty=[{**TARGET, "name": "sdb"}])
    assert (caught.value.begun, (rescue.base / protocol.INTENT).exists()) == (False, False)
