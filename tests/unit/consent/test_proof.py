# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a system must show before it is called verified."""

from __future__ import annotations

import errno
import itertools
import json

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubenode.provision.plugins.module_utils._common import installed, intents
from ansible_collections.kubenode.provision.plugins.module_utils._common.probe import DISK, RAM, Origin, parse_written
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import boot_flow as hetzner_intents
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import fleet_run
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import MachineError
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import claims
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import machine_boot, program_run
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Flow
from ansible_collections.kubenode.provision.plugins.plugin_utils.ssh import gate, system_probe

MINE, OTHER = "a" * 32, "b" * 32
TARGET = {"name": "sda", "size": 10, "wwns": [], "serials": ["S1"]}
SECOND = {"name": "sdb", "size": 10, "wwns": [], "serials": ["S2"]}
WRITTEN = [{**TARGET, "holds": ["uuid-1"], "kinds": ["gpt"], "only": False, "before": []}]
RECORD = {"machine": "n1", "installation": MINE}
OLD = {"machine": "n1", "installation": OTHER, "verified_at": "then"}


def on(disk, uuids=()):
    return Origin(0, DISK, disks=[disk] if disk else [], uuids=uuids)


def judge(record=None, installation=MINE, written=None, origin=None, **options):
    return machine_boot.judge("n1", origin or on(TARGET), record, installation, written, **options)


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        ({"record": RECORD}, "nonce", ""),
        ({"record": RECORD, "written": WRITTEN}, "nonce", ""),
        # cloud-init's seed brings the id, too
        ({"seeded": MINE}, "nonce", ""),
        ({"seeded": MINE, "written": WRITTEN, "origin": on(SECOND)}, "unproven", "another disk"),
        ({"seeded": MINE, "record": OLD}, "unproven", "another system"),
        ({"seeded": OTHER, "written": WRITTEN}, "disk", ""),
        ({"seeded": OTHER}, "unproven", "nothing shows"),
        ({"seeded": "", "installation": ""}, "ssh", ""),
        # the same id, but not the disk that was written: a copy
        ({"record": RECORD, "written": WRITTEN, "origin": on(SECOND)}, "unproven", "another disk (sdb, S2)"),
        ({"record": OLD, "written": WRITTEN}, "unproven", "another system answers: installation bbbbbbbb"),
        ({"record": OLD, "written": WRITTEN, "origin": on(SECOND)}, "unproven", "another disk"),
        ({"written": WRITTEN}, "disk", ""),
        ({"record": {"machine": "n1"}, "written": WRITTEN}, "disk", ""),
        ({"written": WRITTEN, "origin": on(SECOND)}, "unproven", "another disk"),
        ({"written": WRITTEN, "origin": on(None)}, "unproven", "on which disk"),
        ({"written": WRITTEN, "wanted": "nonce"}, "unproven", "asks for one"),
        ({"written": WRITTEN, "wanted": "ssh"}, "disk", ""),
        ({}, "unproven", "nothing shows that this system is installation aaaaaaaa"),
        ({"wanted": "disk"}, "unproven", "KUBENODE_INSTALLATION"),
        ({"wanted": "ssh"}, "ssh", ""),
        ({"wanted": "ssh", "record": OLD}, "unproven", "another system"),
        ({"record": OLD, "adopt": True}, "adopted", ""),
        # it is not known what to expect
        ({"installation": ""}, "ssh", ""),
        ({"installation": "", "wanted": "disk"}, "unproven", "did not install"),
        ({"installation": "", "wanted": "disk", "record": OLD}, "nonce", ""),
        ({"installation": "", "wanted": "disk", "record": RECORD}, "unproven", "never verified"),
        (
            {"installation": "", "wanted": "disk", "record": {**OLD, "machine": "n2"}},
            "unproven",
            "of machine 'n2', which was verified at then, but not as 'n1'. Where the server has two names in the",
        ),
    ],
)
def test_what_is_proven(given, kind, why):
    found = judge(**given)
    assert found.kind == kind
    assert (why in found.why) if why else not found.why
    assert found.verified == (kind in ("nonce", "disk"))


@pytest.mark.parametrize(
    ("target", "same"),
    [
        ({}, True),
        # what was there before is there still: nothing was written
        ({"before": ["gpt", "uuid-1"]}, None),
        ({"before": ["gpt", "uuid-0"]}, True),
        ({"before": None}, None),
        ({"holds": [], "kinds": [], "before": []}, None),
        # neither number can be compared
        ({"serials": []}, None),
        ({"serials": [], "only": True}, True),
        ({"serials": [], "size": 20}, False),
        ({"serials": ["S2"], "only": True}, False),
    ],
)
def test_the_disk_that_it_runs_from(target, same):
    found, why = machine_boot.runs_from(on(TARGET), [{**WRITTEN[0], **target}])
    assert found is same
    assert bool(why) == (same is not True)


def test_every_disk_of_an_array_was_written():
    array = Origin(0, DISK, disks=[TARGET, SECOND])
    both = [WRITTEN[0], {**WRITTEN[0], **SECOND}]
    assert machine_boot.runs_from(array, both)[0] is True
    assert machine_boot.runs_from(array, WRITTEN)[0] is False
    assert machine_boot.runs_from(Origin(0, RAM), both)[0] is None


#: Every case there is: a sample of them missed, for long, that a comparison below was never true.
CASES = itertools.product(
    [None, RECORD, OLD, {"machine": "n1"}, {**RECORD, "machine": "n2"}],
    ["", MINE, OTHER],
    [None, WRITTEN, []],
    [on(TARGET), on(SECOND), on(None)],
    [None, "nonce", "disk", "ssh", "port", "none"],
)


def test_verified_is_said_of_nothing_else():
    kinds = set()
    for record, installation, written, origin, wanted in CASES:
        found = machine_boot.judge("n1", origin, record, installation, written, wanted)
        kinds.add(found.kind)
        shown = installed.installation_of(record)
        if found.verified:
            expected = shown == installation if installation else installed.is_proven(record, "n1")
            from_disk = written == WRITTEN and origin.disks == [TARGET]
            assert (shown and expected) or (from_disk and not shown)
            assert not (written and origin.disks == [SECOND])
        assert bool(found.why) == (found.kind == "unproven")
    assert kinds == {"nonce", "disk", "ssh", "unproven"}


def test_what_the_rescue_saw_of_its_disks():
    text = "disks 1\ndisk sda\nsize 20\nserial S1\nkind gpt\nholds AB\nkind ext4\nholds cd\nend of disks\n"
    (disk,) = parse_written(text)
    assert disk == {
        "name": "sda", "size": 10240, "wwns": [], "serials": ["S1"], "holds": ["ab", "cd"], "kinds": ["gpt", "ext4"],
        "only": True,
    }  # fmt: skip
    assert parse_written(text.replace("end of disks\n", "")) is None


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("n1", "n1", True),
        ("n1.example.com", "n1", True),
        ("n1", "N1.example.com", True),
        ("n1.example.com", "n1.example.org", False),
        ("n10", "n1", False),
        ("localhost", "n1", False),
    ],
)
def test_a_host_name_may_be_short_or_qualified(found, wanted, same):
    assert gate.same_host(found, wanted) is same


@pytest.mark.parametrize(
    ("record", "expected", "proven"),
    [
        (OLD, OTHER, True),
        (OLD, "", True),
        (OLD, MINE, False),
        (RECORD, MINE, False),
        ({**OLD, "machine": "n2"}, OTHER, False),
        ({"machine": "n1", "verified_at": "then"}, "", False),
        ({**OLD, "installation": "x"}, "x", False),
        (None, "", False),
    ],
)
def test_only_the_record_of_this_installation_counts(record, expected, proven):
    assert installed.is_proven(record, "n1", expected) is proven


def test_drift_is_what_both_sides_know_and_differs():
    record = {"image_url": "a", "command": "c", "installed_at": "T"}
    found = installed.drift(record, {"name": "n1", "image_url": "b", "command": "c", "image_digest": "sha256:0"})
    assert found == [{"what": "image_url", "runs": "a", "since": "T", "wanted": "b"}]
    words = installed.drift_in_words(found)
    assert words == "runs image_url a since T, asked for image_url b; kubenode_reinstall writes it"
    assert installed.drift_in_words([]) == ""


def boot_of(folder, remote=None, **more):
    """What proves a system that is installation MINE, whose intent lies in this folder; and its options."""
    given = {"reboot": False, "installation": MINE, "intent_file": str(folder / "n1.json"), **more}
    given = ArgumentSpecValidator(options.machine_boot_spec()).validate(given).validated_parameters
    return machine_boot._Boot(remote, given, Flow({**given, "known_hosts_dir": str(folder)}, "n1"), []), given


def test_a_second_run_knows_which_disk_the_first_one_wrote(tmp_path):
    """What a first run disproved, a copy of its record on another disk does not prove to the second one."""
    path = str(tmp_path / "n1.json")
    intents.write(path, intents.make("n1", MINE, "empty"))
    intents.note_written(path, WRITTEN, succeeded=True)
    intents.close(path, intents.GIVEN_UP)
    boot, given = boot_of(tmp_path, proof="disk")

    def judged(disk, record):
        cloud_init = system_probe.CloudInit("done")
        return boot._judge_proof(system_probe.System("b", "n1", "6", "Debian", on(disk), cloud_init, record))

    assert judged(SECOND, RECORD).verdict is gate.Verdict.NEVER
    assert "another disk (sdb, S2)" in judged(SECOND, RECORD).why
    assert judged(TARGET, RECORD).verdict is gate.Verdict.OPEN
    # another process may have written the disk since
    assert judged(TARGET, None).verdict is gate.Verdict.NEVER
    given["installation"] = OTHER
    assert intents.written_of(path, OTHER) is None
    for damaged in (
        f'{{"installation": "{MINE}", "written": [1]}}',
        f'{{"installation": "{MINE}", "written": 1}}',
        "{}",
    ):
        (tmp_path / "n1.json").write_text(damaged)
        assert intents.written_of(path, MINE) is None


WHOLE = {**RECORD, "command": "c", "image_url": "https://i/a.raw", "installed_at": "T"}


@pytest.mark.parametrize(
    ("succeeded", "record", "wanted", "kind"),
    [
        (True, RECORD, None, machine_boot.NONCE),
        (False, WHOLE, None, machine_boot.UNPROVEN),
        (False, {**WHOLE, "verified_at": "T"}, None, machine_boot.UNPROVEN),
        (False, WHOLE, "ssh", machine_boot.SSH),
        (None, WHOLE, None, machine_boot.NONCE),
        (None, {**RECORD, "verified_at": "T"}, None, machine_boot.NONCE),
        (None, {key: RECORD[key] for key in ("machine", "installation")}, None, machine_boot.UNPROVEN),
        (None, None, "disk", machine_boot.UNPROVEN),
    ],
)
def test_a_later_run_believes_no_command_that_failed_or_was_not_seen_to_end(succeeded, record, wanted, kind):
    found = machine_boot.of_earlier_run(machine_boot.Proof(machine_boot.NONCE), "n1", record, succeeded, wanted)
    assert found.kind == kind
    assert found.verified == (kind == machine_boot.NONCE)


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("succeeded", [False, True])
def test_how_a_command_ended_is_kept_for_as_long_as_its_system(tmp_path, succeeded, replaces):
    run, store = fleet_run.MachineRun("n1"), hetzner_intents.IntentStore(str(tmp_path), {})
    run.result["installation"] = MINE
    path = intents.file_of(str(tmp_path), "n1")
    assert intents.seen_to_succeed(None, MINE) is None
    store.open(run, "empty")
    assert intents.seen_to_succeed(store.of("n1"), MINE) is None
    claims.note_begun(path)
    assert intents.seen_to_succeed(store.of("n1"), MINE) is False
    intents.note_written(path, [], succeeded)
    intents.close(path, intents.GIVEN_UP)
    if replaces:  # armed for another one, of which nothing was written
        run.result["installation"] = OTHER
        store.open(run, "reinstall", replaces=MINE)
        assert intents.seen_to_succeed(store.of("n1"), OTHER) is None
    assert intents.seen_to_succeed(store.of("n1"), MINE) is succeeded


def test_a_full_disk_at_the_end_of_an_intent_ends_one_machine_alone(tmp_path, monkeypatch):
    """Any other error would end the whole fleet, and armed rescues would stay armed."""
    run, store = fleet_run.MachineRun("n1"), hetzner_intents.IntentStore(str(tmp_path), {})
    run.result["installation"] = MINE
    store.open(run, "empty")

    def full(*_arguments, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(intents.safe_files, "write_json", full)
    with pytest.raises(MachineError, match="No space left"):
        store.seen("n1", True)


def test_a_command_that_is_started_again_must_succeed_again(tmp_path):
    """Another image in the same rescue: the success of the first one says nothing of what the second one leaves."""
    path = str(tmp_path / "n1.json")
    intents.write(path, intents.make("n1", MINE, "empty"))
    run = program_run.RescueRun.__new__(program_run.RescueRun)
    run._given = {"intent_file": path}
    run._note_start()
    intents.note_written(path, WRITTEN, succeeded=True)
    run._note_changed()
    assert intents.seen_to_succeed(intents.read(path), MINE) is True
    run._note_start()
    assert intents.seen_to_succeed(intents.read(path), MINE) is False


@pytest.mark.parametrize("known", [False, True])
def test_a_record_is_not_completed_with_what_another_run_asks_for(tmp_path, known):
    path = str(tmp_path / "n1.json")
    made = intents.make("n1", MINE if known else OTHER, "empty", image_url="https://u:p@i/a.raw?t=1", command="a")
    intents.write(path, {**made, "begun": True, "succeeded": True})
    written = []

    class Remote:
        def run(self, _script, record):
            written.append(json.loads(record))
            return 0, "recorded=1"

    boot, _given = boot_of(tmp_path, Remote(), image_url="https://i/b.raw", command="b")
    boot._proof = machine_boot.Proof(machine_boot.NONCE)
    record = {"machine": "n1", "installation": MINE}
    system = system_probe.System("b", "n1", "6", "Debian", on(TARGET), system_probe.CloudInit("done"), record)
    assert boot._write_record(system, {})
    about = {key: written[0].get(key) for key in ("image_url", "command")}
    assert about == (
        {"image_url": "https://i/a.raw", "command": "a"} if known else {"image_url": None, "command": None}
    )
