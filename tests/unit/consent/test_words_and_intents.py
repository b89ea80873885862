# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a word covers and when it is used up; which rescue belongs to an open intent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, installed, intents
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import RAM, Origin
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import to_rfc3339
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import cloud_arming
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import robot_rescue as robot
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import SYSTEM, Answer
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import targets
from tests.unit.consent.test_begun import job_of, one_disk

MINE, OTHER = "a" * 32, "b" * 32
NOW = 1_800_000_000.0
FRESH = {"machine": "n1", "installation": MINE, "consent": "fresh"}
BY_WORD = {"machine": "n1", "installation": OTHER, "consent": "fresh+reinstall", "installed_at": "T"}


@pytest.mark.parametrize(
    ("given_words", "record", "covered"),
    [
        (["n1"], None, True),
        (["n1"], FRESH, True),
        (["n1"], BY_WORD, False),
        (["n2"], FRESH, False),
        ({"n1": OTHER[:8]}, BY_WORD, True),
        ({"n1": OTHER}, BY_WORD, True),
        ({"n1": OTHER[:8]}, FRESH, False),
        ({"n1": OTHER[:8]}, None, False),
        (None, None, False),
    ],
)
def test_what_a_permission_covers(given_words, record, covered):
    words = consent.Words("reinstall", given_words)
    assert words.findings == []
    assert words.covers("n1", record) is covered


@pytest.mark.parametrize(
    ("state", "begun", "used"),
    [
        (intents.OPEN, True, False),
        (intents.DONE, None, True),
        (intents.SEEN, None, False),
        (intents.SEEN, False, False),
        (intents.SEEN, "maybe", True),
        (intents.GIVEN_UP, True, True),
        (intents.GIVEN_UP, False, False),
    ],
)
def test_an_intent_that_ended_before_anything_was_written_uses_no_permission_up(state, begun, used):
    kept = dict(intents.make("n1", MINE, "reinstall"), state=state, begun=begun)
    assert bool(consent.Words("reinstall", ["n1"]).used_by("n1", kept)) is used
    # also one that names an installation: a machine that cannot be asked is not reset for it again
    named = consent.Words("reinstall", {"n1": OTHER[:8]})
    assert bool(named.used_by("n1", kept)) is used
    assert named.names_installation("n1", {"installation": OTHER})
    assert not named.names_installation("n1", {"installation": MINE})
    assert not consent.Words("reinstall", ["n1"]).names_installation("n1", {"installation": OTHER})


@pytest.mark.parametrize(
    ("given_words", "finding"),
    [
        ("n1", "neither a list of names nor a dictionary"),
        (True, "neither a list"),
        ([7], "is no name"),
        ({"n1": "abc"}, "at least its first 8"),
        ({"n1": "not-a-number"}, "no id"),
        ({"n1": None}, "no id"),
    ],
)
def test_permissions_that_mean_nothing_are_reported(given_words, finding):
    assert finding in consent.Words("reinstall", given_words).findings[0]


def test_the_error_about_a_used_permission_says_how_to_go_on():
    text = consent.Words("reinstall", ["n1"]).why_not("n1", BY_WORD)
    assert text == (
        "kubenode_reinstall names n1, but this was used at T for installation bbbbbbbb, which is there; to write it "
        'again: -e \'{"kubenode_reinstall": {"n1": "bbbbbbbb"}}\''
    )
    assert "but bbbbbbbb is there" in consent.Words("reinstall", {"n1": MINE}).why_not("n1", BY_WORD)


@given(st.lists(st.sampled_from(consent.KINDS)))
def test_a_permission_is_used_up_by_what_it_allowed(kinds):
    record = {"installation": MINE, "consent": consent.joined(*kinds)}
    for word in ("reinstall", "wipe"):
        assert consent.Words(word, ["n1"]).covers("n1", record) is (word not in kinds)
        assert consent.Words(word, {"n1": MINE}).covers("n1", record)


def intent(**more):
    return {**intents.make("n1", MINE, "fresh", now=NOW), **more}


@pytest.mark.parametrize(
    ("found", "installation", "later", "is_open"),
    [
        (intent(), "", 0, True),
        (intent(), MINE, 3600, True),
        (intent(), OTHER, 0, False),
        (intent(machine="n2"), "", 0, False),
        (intent(state=intents.SEEN), "", 0, False),
        (intent(state=intents.DONE), "", 0, False),
        (intent(), "", 25 * 3600, False),
        (intent(), "", -3600, False),
        (intent(armed_at=7), "", 0, False),
        (None, "", 0, False),
    ],
)
def test_an_intent_is_open_until_its_end(found, installation, later, is_open):
    assert intents.is_open(found, "n1", installation, now=NOW + later) is is_open


def test_an_intent_is_kept_and_closed_once(tmp_path):
    path = intents.file_of(str(tmp_path / "intents"), "n1")
    assert intents.read(path) is None
    assert not intents.close(path, intents.DONE)
    intents.write(path, intents.make("n1", MINE, "fresh", server=7, image_url=""))
    assert oct((tmp_path / "intents" / "n1.json").stat().st_mode)[-3:] == "600"
    assert intents.is_open(intents.read(path), "n1", MINE)
    assert intents.close(path, intents.SEEN)
    assert not intents.close(path, intents.DONE)
    kept = json.loads((tmp_path / "intents" / "n1.json").read_text())
    assert (kept["state"], kept["server"], "image_url" in kept) == (intents.SEEN, 7, False)


@given(st.text())
def test_hostile_text_is_no_open_intent(text):
    assert not intents.is_open(intents.parse(text), "n1")


def action(command, number, status="success"):
    return {"command": command, "id": number, "status": status}


FIRST_BOOT = [action("start_server", 3), action("enable_rescue", 2), action("create_server", 1)]
REPAIR = [action("reset_server", 5), action("enable_rescue", 4), *FIRST_BOOT]


def now_open(**more):
    return {**intents.make("n1", MINE, "reinstall"), **more}


@pytest.mark.parametrize(
    ("installation", "kept", "carried", "history", "ground"),
    [
        (MINE, None, None, FIRST_BOOT, "fresh"),
        (MINE, None, None, [action("enable_rescue", 9, "error"), *FIRST_BOOT], "fresh"),
        # without our label, it is not known what it was made for
        ("", None, None, FIRST_BOOT, ""),
        (MINE, None, None, REPAIR, ""),
        (MINE, None, None, FIRST_BOOT[:-1], ""),
        (MINE, now_open(armed={"action": 4}), None, REPAIR, "reinstall"),
        (MINE, now_open(armed={"action": 2}), None, REPAIR, ""),
        (MINE, now_open(), None, REPAIR, ""),
        (MINE, now_open(armed={"action": 4}, state=intents.DONE), None, REPAIR, ""),
        (OTHER, now_open(armed={"action": 4}), None, REPAIR, ""),
        (MINE, None, now_open(), REPAIR, "reinstall"),
        # fresh is a disk that never ran: a server that booted twice may have run it
        (MINE, now_open(armed={"action": 2}, consent="fresh"), None, FIRST_BOOT, "fresh"),
        (MINE, now_open(armed={"action": 4}, consent="fresh"), None, REPAIR, "empty"),
        (MINE, None, now_open(consent="fresh+reinstall"), REPAIR, "reinstall"),
        (OTHER, None, now_open(), REPAIR, ""),
        ("", None, now_open(), REPAIR, ""),
    ],
)
def test_the_rescue_of_a_cloud_server_belongs_to_an_intent_or_to_a_person(installation, kept, carried, history, ground):
    assert cloud_arming.started_for("n1", installation, kept, carried, history) == ground


def rescue(carried=None, uptime=60.0):
    return Answer(SYSTEM, origin=Origin(0, RAM, ["oldroot"], uptime=uptime), intent=carried)


@pytest.mark.parametrize(
    ("kept", "answer", "shown", "ours"),
    [
        (None, rescue(), [], False),
        (None, rescue(now_open()), [], True),
        (now_open(installation=OTHER), rescue(now_open()), [], False),
        (now_open(armed={"host_keys": ["k"]}), rescue(), ["k"], True),
        (now_open(armed={"host_keys": ["k"]}), rescue(), ["other"], False),
        # armed, and the run was cut off before the rescue came
        (now_open(), rescue(uptime=1.0), [], True),
        (now_open(), rescue(uptime=9000.0), [], False),
        (now_open(), rescue(uptime=None), [], False),
        (now_open(state=intents.SEEN), rescue(uptime=1.0), [], False),
    ],
)
def test_the_rescue_of_a_dedicated_server_belongs_to_an_intent_or_to_a_person(kept, answer, shown, ours):
    assert robot.started_for("n1", kept, answer, shown) is ours


def test_unknown_kinds_of_consent_are_refused():
    assert targets.kinds_of("") == ["empty"]
    assert targets.kinds_of("checked+wipe") == ["checked", "wipe"]
    with pytest.raises(ValueError, match="'everything'"):
        targets.kinds_of("fresh+everything")


def test_the_clock_of_an_intent_is_the_controllers():
    assert intents.make("n1", MINE, "fresh", now=NOW)["armed_at"] == to_rfc3339(NOW)


@pytest.mark.parametrize(
    ("word", "more", "record", "why"),
    [
        (["n1"], {}, FRESH, ""),
        (["n1"], {}, None, ""),
        (["n1"], {}, BY_WORD, "was used at T"),
        ({"n1": OTHER[:8]}, {}, BY_WORD, ""),
        ({"n1": MINE[:8]}, {}, BY_WORD, "but bbbbbbbb is there"),
        ({"n1": OTHER[:8]}, {}, None, "but one without an id is there"),
        # the id that an unproven system without a record had
        ({"n1": OTHER[:8]}, {"goes": ["AB-CD"]}, None, ""),
        # what an earlier run was allowed, which was cut off before it began to write, ended with it
        ([], {"consent": "reinstall"}, BY_WORD, "To write it, name the machine"),
        ([], {"goes": ["AB-CD"]}, None, "To write it, name the machine"),
    ],
)
def test_what_lies_on_the_disk_says_whether_the_permission_covers_it(monkeypatch, tmp_path, word, more, record, why):
    entry = {"device": "sda1", "kind": "filesystem", "type": "ext4", "label": "", "uuid": "ab-cd", "detail": ""}
    entry.update({"installed": record} if record else {}, mounts=[], in_use=False, disks=["sda"], system="")
    emptied = []
    one_disk(monkeypatch, [entry], lambda _tools, names: emptied.extend(names))
    job = job_of(now_open(**more), "named", reinstall=word)
    (tmp_path / targets.protocol.INTENT).parent.mkdir()

    def prepare():
        targets.prepare(lambda *_given, **_more: (1, "", ""), job, str(tmp_path))

    if why:
        with pytest.raises(targets.job.JobError, match=why):
            prepare()
    else:
        prepare()
        assert job.consent == "reinstall"
    assert emptied == ([] if why else ["sda"])


@pytest.mark.parametrize(
    ("given_words", "fix"),
    [
        ("c1 c2", 'write -e \'{"kubenode_VARIABLE": ["c1", "c2"]}\''),
        ("c1,c2", 'write -e \'{"kubenode_VARIABLE": ["c1", "c2"]}\''),
        (" c1 ", 'write -e \'{"kubenode_VARIABLE": ["c1"]}\''),
        ("[c1]", 'write -e \'{"kubenode_VARIABLE": ["c1"]}\''),
        ("['c1', \"c2\"]", 'write -e \'{"kubenode_VARIABLE": ["c1", "c2"]}\''),
        ('{"c1": "5f0c6f1d"}', 'write -e \'{"kubenode_VARIABLE": {"c1": "5f0c6f1d"}}\''),
        ("{c1: 5f0c6f1d}", 'write -e \'{"kubenode_VARIABLE": {"c1": "5f0c6f1d"}}\''),
        ("", 'write -e \'{"kubenode_VARIABLE": ["NAME"]}\''),
        (7, 'write -e \'{"kubenode_VARIABLE": ["NAME"]}\''),
        ([""], "'' is no name; write a list of names, such as [a, b], or leave the entry out"),
    ],
)
@pytest.mark.parametrize("variable", ["reinstall", "wipe", "delete", "release"])
def test_every_finding_about_permissions_names_what_would_be_taken(variable, given_words, fix):
    (finding,) = consent.Words(variable, given_words).findings
    assert finding.endswith(fix.replace("VARIABLE", variable))


# --- what identifies the installation of a system that has no record


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
