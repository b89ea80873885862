# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards: nothing is erased without consent, and what is erased is exactly what the user consented to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent as consents
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts, guard
from tests.unit.disks import recorded
from tests.unit.disks.recorded import disk


def entry(kind: str, *disks: str, **more: object) -> dict:
    found = {"kind": kind, "device": "x", "type": "ext4", "label": "", "uuid": "", "detail": "", "mounts": []}
    return {**found, "disks": list(disks), "in_use": False, **more}


def system(name: str, machine: str | None, *disks: str, **more: object) -> dict:
    record = {"installed": {"machine": machine}} if machine else {}
    return entry("system", *disks, system=name, **record, **more)


BLANK = disk("sda", serial="A", wwn="0xa")
DATA = disk("sdb", serial="B", wwn="0xb", holds=[entry("filesystem", "sdb")])
OURS = disk("sdc", serial="C", wwn="0xc", holds=[entry("table", "sdc"), system("Debian", "node-1", "sdc")])
OTHERS = disk("sdd", serial="D", wwn="0xd", holds=[system("Debian", "node-2", "sdd")])
FOREIGN = disk("sde", serial="E", wwn="0xe", holds=[system("Old Linux", None, "sde")])
RAID = [
    disk("sdf", serial="SDF", wwn="0x1f", holds=[entry("raid", "sdf", "sdg")]),
    disk("sdg", serial="SDG", wwn="0x20", holds=[entry("raid", "sdf", "sdg")]),
]
DISKS = [BLANK, DATA, OURS, OTHERS, FOREIGN, *RAID]


def judge(*chosen, **more):
    return guard.judge(DISKS, list(chosen), "node-1", **more)


@pytest.mark.parametrize(
    ("chosen", "more", "wiped"),
    [
        (["sda"], {}, []),
        (["sda"], {"wipe": ["A"]}, []),
        (["sdb"], {"wipe": ["B"]}, ["sdb"]),
        (["sdb"], {"wipe": ["0XB"]}, ["sdb"]),
        (["sda"], {"wipe": ["B"]}, ["sdb"]),
        (["sdc"], {"reinstall": True}, ["sdc"]),
        (["sdc"], {"wipe": ["C"]}, ["sdc"]),
        (["sdb"], {"claimed": True}, ["sdb"]),
        (["sde"], {"claimed": True}, ["sde"]),
        (["sdf", "sdg"], {"wipe": ["SDF", "SDG"]}, ["sdf", "sdg"]),
        (["sdf"], {"wipe": ["SDG", "SDF"]}, ["sdg", "sdf"]),
        (["sdf", "sdg"], {"claimed": True}, ["sdf", "sdg"]),
    ],
)
def test_consent(chosen, more, wiped):
    verdict = judge(*chosen, **more)
    assert verdict.errors == []
    assert verdict.wipe == wiped


@pytest.mark.parametrize(
    ("chosen", "more", "says"),
    [
        (["sdb"], {}, """-e '{"kubenode_wipe": ["0xb"]}'"""),
        (["sdb"], {"wipe": ["A"]}, """-e '{"kubenode_wipe": ["0xb"]}'"""),
        (["sdb"], {"reinstall": True}, "covers only what was installed for this machine"),
        (["sdc"], {}, """-e '{"kubenode_reinstall": ["node-1"]}'. To keep it, reboot the server"""),
        (["sdd"], {"reinstall": True}, "machine node-2"),
        (["sdd"], {"claimed": True}, """-e '{"kubenode_wipe": ["0xd"]}'"""),
        (["sde"], {"reinstall": True}, "Old Linux"),
        (["sdc", "sde"], {"reinstall": True}, "Old Linux"),
        (["sdf"], {"wipe": ["SDF"]}, "name that one in kubenode_wipe too ('0x20')"),
        (["sdf"], {"claimed": True}, "disk sdg"),
        (["sda"], {"wipe": ["SDF"]}, "disk sdg"),
        (["sda"], {"wipe": ["all"]}, "names no disk"),
        (["sda"], {"wipe": ["ALL"]}, "names no disk"),
        (["sda"], {"wipe": ["*"]}, "names no disk"),
        (["sda"], {"wipe": [" "]}, "names no disk"),
        (["sda"], {"wipe": ["sdb"]}, "names no disk"),
        (["sda"], {"wipe": ["/dev/sdb"]}, "names no disk"),
        (["sda"], {"wipe": ["Z9"]}, "'Z9'"),
        (["sdb"], {"wipe": ["B", "Z9"]}, "a disk of another machine, run for one machine at a time (--limit)"),
    ],
)
def test_refusal(chosen, more, says):
    verdict = judge(*chosen, **more)
    assert says in "\n".join(verdict.errors)
    assert verdict.wipe == []
    assert not verdict.permanent


def test_a_second_system_beside_ours_is_not_ours():
    both = disk("sda", serial="A", holds=[system("Debian", "node-1", "sda"), system("Old Linux", None, "sda")])
    assert guard.judge([both], ["sda"], "node-1", reinstall=True).errors
    assert not guard.judge([both], ["sda"], "node-1", wipe=["A"]).errors


def test_a_failing_disk_is_refused_for_good_unless_health_is_ignored():
    failing = dict(BLANK, health={"status": "failed", "detail": "SMART says that the disk is failing"})
    verdict = guard.judge([failing, DATA], ["sda"], "node-1")
    assert verdict.permanent
    assert "failing" in verdict.errors[0]
    assert not guard.judge([failing, DATA], ["sda"], "node-1", health=False).errors
    assert not guard.judge([failing, DATA], ["sdb"], "node-1", wipe=["B"]).permanent, "only a chosen disk counts"


@pytest.mark.parametrize("place", ["/", "/boot", "/usr"])
def test_the_running_system_s_disk_is_never_emptied(place):
    used = disk("sda", serial="A", holds=[entry("filesystem", "sda", mounts=[place], in_use=True)])
    assert "running system" in guard.judge([used], ["sda"], "node-1", wipe=["A"]).errors[0]
    data = disk("sda", serial="A", holds=[entry("filesystem", "sda", mounts=["/mnt"], in_use=True)])
    assert guard.judge([data], ["sda"], "node-1", wipe=["A"]).wipe == ["sda"]


def test_a_read_only_disk_and_one_without_a_name():
    fixed = disk("sda", serial="A", read_only=True, holds=[entry("filesystem", "sda")])
    assert "read-only" in guard.judge([fixed], [], "node-1", wipe=["A"]).errors[0]
    nameless = disk("sda", holds=[entry("filesystem", "sda")])
    assert "empty it by hand" in guard.judge([nameless], ["sda"], "node-1").errors[0]


def test_raid_with_our_system_on_two_disks():
    found = disk_facts.facts(recorded.raid1_with_lvm())
    both = ["nvme0n1", "nvme1n1"]
    assert guard.judge(found, both, "node-1", reinstall=True).wipe == both
    assert guard.judge(found, both, "node-2", reinstall=True).errors
    assert guard.judge(found, both[:1], "node-1", reinstall=True).errors, "the other half must be named too"
    assert guard.judge(found, both[:1], "node-1", reinstall=True, wipe=["S4GENX0N100002"]).wipe == [*reversed(both)]
    (refused,) = guard.judge(found, both[:1], "node-1").errors
    assert "Debian GNU/Linux 12 (bookworm) (installed as node-1)" in refused


def installed(name: str, machine: str, consent: str, **more: object) -> dict:
    record = {"machine": machine, "installation": "7b2685fb" + 24 * "0", "consent": consent}
    held = [entry("system", name, system="Debian", installed=record)]
    return disk(name, serial=name.upper(), holds=held, **more)


def by_words(disks: list, chosen: list, wipe: object = (), reinstall: object = (), claimed: bool = False):
    """The verdict of these words for node-1, as machine_disks asks for it."""
    words = {"wipe": consents.Words("wipe", wipe), "reinstall": consents.Words("reinstall", reinstall)}

    def used(variable, name, record):
        return "" if words[variable].covers(name, record) else words[variable].why_not(name, record)

    named = words["reinstall"].names("node-1")
    return guard.judge(disks, chosen, "node-1", list(words["wipe"]), named, claimed, used=used), words


def test_an_entry_that_is_used_up_does_nothing_where_reinstall_covers_the_disk():
    ours, other = installed("sda", "node-1", "wipe"), installed("sdb", "node-2", "wipe")
    verdict, _words = by_words([ours, BLANK | {"name": "sdz"}], ["sda"], ["SDA"], ["node-1"])
    assert (verdict.errors, verdict.wipe) == ([], ["sda"])
    (note,) = verdict.notes
    assert "kubenode_wipe names SDA, but this was used" in note
    assert note.endswith("Only kubenode_reinstall counts here")
    assert by_words([ours], ["sda"], {"SDA": "0123456789"}, ["node-1"])[0].wipe == ["sda"]
    assert by_words([ours], ["sda"], ["SDA"])[0].errors, "alone it is refused"
    assert by_words([other], ["sdb"], ["SDB"], ["node-1"])[0].errors, "what is another machine's is not covered"
    assert by_words([ours, other], ["sda"], ["SDB"], ["node-1"])[0].errors, "nor is a disk that is not written"
    both = installed("sda", "node-1", "reinstall+wipe")
    refused = "\n".join(by_words([both], ["sda"], ["SDA"], ["node-1"])[0].errors)
    assert "kubenode_reinstall names node-1, but this was used" in refused
    assert by_words([both], ["sda"], ["SDA"], {"node-1": "7b2685fb"})[0].wipe == ["sda"]


def test_an_entry_of_a_disk_without_a_record_is_not_believed_beside_one_that_is_used_up():
    """The installation that used up the one may have used up the other, and data was put there since."""
    ours = installed("sda", "node-1", "wipe")
    verdict, _words = by_words([ours, DATA], ["sda"], ["SDA", "B"], ["node-1"])
    assert "kubenode_wipe names SDA, but this was used" in "\n".join(verdict.errors)
    assert verdict.wipe == []
    assert by_words([ours, DATA], ["sda"], {"SDA": "7b2685fb", "B": "7b2685fb"}, ["node-1"])[0].wipe == ["sda", "sdb"]
    assert by_words([ours, BLANK | {"name": "sdz"}], ["sda"], ["SDA", "A"], ["node-1"])[0].wipe == ["sda"]


RECORDS = ["", "wipe", "reinstall", "reinstall+wipe"]
ENTRIES = st.one_of(
    st.lists(st.sampled_from(["SDA", "SDB"]), unique=True),
    st.dictionaries(st.sampled_from(["SDA", "SDB"]), st.sampled_from(["7b2685fb", "0123456789"])),
)


@recorded.CALM
@given(
    st.lists(st.tuples(st.sampled_from(["node-1", "node-2", None]), st.sampled_from(RECORDS)), min_size=2, max_size=2),
    ENTRIES,
    st.sampled_from([[], ["node-1"], {"node-1": "7b2685fb"}]),
)
def test_a_word_that_is_used_up_permits_nothing(systems, wipe, reinstall):
    disks = [
        installed(name, machine, consent) if machine else disk(name, serial=name.upper(), holds=[entry("data", name)])
        for name, (machine, consent) in zip(("sda", "sdb"), systems, strict=True)
    ]
    verdict, words = by_words(disks, ["sda"], wipe, reinstall)
    for one in disks:
        record = one["holds"][0].get("installed")
        by_wipe = words["wipe"].covers(one["serial"], record) if record else words["wipe"].names(one["serial"])
        ours = one["name"] == "sda" and (record or {}).get("machine") == "node-1"
        if one["name"] in verdict.wipe:
            assert by_wipe or (ours and words["reinstall"].covers("node-1", record))
    without, _same = by_words(disks, ["sda"], [], reinstall)
    if verdict.notes:
        assert (verdict.errors, verdict.wipe) == (without.errors, without.wipe), "as if it were not given"


def test_the_diff_names_each_disk_and_no_other():
    found = guard.diff(DISKS, ["sdb", "sdf"])
    assert [one["before_header"].split()[1] for one in found] == ["sdb", "sdf"]
    assert all(one["after"] == "nothing\n" and one["before"].strip() for one in found)


NAMES = ["sda", "sdb", "sdc", "sdd"]


@st.composite
def machines(draw):
    disks = []
    for name in NAMES:
        kinds = draw(st.lists(st.sampled_from(["filesystem", "raid", "system", "ours"]), max_size=2))
        holds = []
        for kind in kinds:
            others = draw(st.lists(st.sampled_from(NAMES), max_size=2)) if kind == "raid" else []
            spans = sorted({name, *others})
            holds.append(system("L", "node-1", *spans) if kind == "ours" else entry(kind, *spans, system="L"))
        disks.append(disk(name, serial="S" + name, holds=holds))
    # What spans two disks is seen on both of them.
    for one in disks:
        for held in one["holds"]:
            for other in disks:
                if other["name"] in held["disks"] and held not in other["holds"]:
                    other["holds"].append(held)
    return disks


SUBSET = st.lists(st.sampled_from(NAMES), unique=True)


@recorded.CALM
@given(machines(), SUBSET.filter(bool), SUBSET, st.booleans(), st.booleans())
def test_only_consented_disks_are_emptied_and_afterwards_the_chosen_ones_are(disks, chosen, named, reinstall, claimed):
    verdict = guard.judge(disks, chosen, "node-1", ["S" + name for name in named], reinstall, claimed)
    by_name = {one["name"]: one for one in disks}
    for name in verdict.wipe:
        ours = any(held.get("installed") for held in by_name[name]["holds"])
        assert name in named or (name in chosen and (claimed or (reinstall and ours)))
        assert all(other in verdict.wipe for held in by_name[name]["holds"] for other in held["disks"])
    if not verdict.errors:
        assert all(name in verdict.wipe or not by_name[name]["holds"] for name in chosen)
    else:
        assert verdict.wipe == []


def test_what_could_start_instead_of_the_new_system_is_warned_of():
    esp = disk("sdh", serial="H", wwn="0x8", holds=[entry("filesystem", "sdh", detail="EFI system partition")])
    grub = disk("sdi", serial="I", wwn="0x9", holds=[entry("unknown", "sdi", detail="BIOS boot partition")])
    disks = [BLANK, DATA, FOREIGN, esp, grub]
    warnings = guard.could_boot(disks, {"sda"})
    assert [text.split()[1] for text in warnings] == ["sde", "sdh", "sdi"]
    assert "Old Linux" in warnings[0]
    assert "the firmware could start what it holds" in warnings[0]
    assert guard.could_boot(disks, {"sda", "sde", "sdh", "sdi"}) == []
