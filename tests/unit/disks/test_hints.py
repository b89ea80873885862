# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root-device hints and stable names: one answer, or an error that lists the candidates."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts, disk_names
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import machine_disks
from tests.unit.disks import recorded
from tests.unit.disks.recorded import disk

DISKS = [
    disk(
        "sda",
        4 * 10**12,
        wwn="0x50014ee2b1a00001",
        serial="WD1",
        model="WDC WD4000",
        rotational=True,
        by_id=["ata-WD1"],
    ),
    disk("sdb", 480 * 10**9, wwn="0x50014ee2b1a00002", serial="IN1", model="INTEL SSD"),
    disk(
        "nvme0n1",
        wwn="eui.0025385b71b00001",
        serial="S1",
        model="SAMSUNG_MZVLB",
        kind="nvme",
        by_id=["nvme-SAMSUNG_S1"],
    ),
    disk("nvme1n1", wwn="eui.0025385b71b00002", serial="S2", model="SAMSUNG_MZVLB", kind="nvme"),
    disk("sdc", 32 * 10**9, serial="USB1", model="Virtual Floppy", removable=True, kind="usb"),
    disk("sdd", 0, model="Card Reader"),
    disk("sde", 10 * 10**9, serial="ROM1", read_only=True),
]


def chosen(**wanted) -> list[str]:
    return [one["name"] for one in disk_names.choose(wanted, DISKS, machine_disks.search_query)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"wwn": "0x50014ee2b1a00001"}, ["sda"]),
        ({"wwn": "50014EE2B1A00001"}, ["sda"]),
        ({"wwn": "wwn-0x50014ee2b1a00001"}, ["sda"]),
        ({"wwn": "EUI.0025385B71B00002"}, ["nvme1n1"]),
        ({"wwn": "0025385b71b00002"}, ["nvme1n1"]),
        ({"serial": "IN1"}, ["sdb"]),
        ({"by_id": "ata-WD1"}, ["sda"]),
        ({"by_id": "/dev/disk/by-id/nvme-SAMSUNG_S1"}, ["nvme0n1"]),
        ({"model": "intel  ssd"}, ["sdb"]),
        ({"min_size": "1T"}, ["sda"]),
        ({"min_size": "3.6TiB"}, ["sda"]),
        ({"smallest": True}, ["sdb"]),
        ({"smallest": True, "rotational": True}, ["sda"]),
        ({"min_size": "1G", "rotational": False, "kind": "sata"}, ["sdb"]),
        ({"raid": {"wwn": ["eui.0025385b71b00002", "eui.0025385b71b00001"]}}, ["nvme1n1", "nvme0n1"]),
        ({"query": "[?kind=='nvme']"}, ["nvme0n1", "nvme1n1"]),
        ({"query": "min_by(@, &size)"}, ["sdb"]),
        ({"query": "sort_by([?size > `500000000000`], &size)[-1]"}, ["sda"]),
    ],
)
def test_one_answer(wanted, found):
    assert chosen(**wanted) == found


@pytest.mark.parametrize(
    ("wanted", "reason", "permanent"),
    [
        ({"wwn": "0x50014ee2b1a0ffff"}, "means no disk", True),
        ({"serial": "in1"}, "means no disk", True),
        ({"serial": "USB1"}, "removable", True),
        ({"serial": "ROM1"}, "read-only", True),
        ({"model": "SAMSUNG MZVLB"}, "means 2 disks", False),
        ({"min_size": "480G"}, "means 4 disks", False),
        ({"min_size": "480GiB", "kind": "sata", "rotational": False}, "means no disk", True),
        ({"smallest": True, "kind": "nvme"}, "means 2 disks", False),
        ({"smallest": True, "kind": "virtio"}, "means no disk", True),
        ({"raid": {"wwn": ["eui.0025385b71b00001", "0x50014ee2b1a0ffff"]}}, "means no disk", True),
        ({"query": "[?kind=='virtio']"}, "means no disk", True),
        ({"query": "nothing"}, "means no disk", True),
        ({"query": "[].name"}, "whole as they are", False),
        ({"query": "[0].size"}, "whole as they are", False),
        ({"query": "[?kind=='nvme'].{name: name}"}, "whole as they are", False),
        ({"query": "[[0], [0]][]"}, "twice", False),
        ({"query": "sort_by(@, &holds)"}, "cannot be evaluated", False),
    ],
)
def test_no_answer_is_an_error(wanted, reason, permanent):
    with pytest.raises(disk_names.HintError, match=reason) as caught:
        chosen(**wanted)
    assert caught.value.permanent is permanent


def test_the_error_lists_every_disk_and_why_not():
    with pytest.raises(disk_names.HintError) as caught:
        chosen(serial="XX", rotational=False)
    lines = str(caught.value).splitlines()
    for one in DISKS:
        (line,) = [line for line in lines if line.split()[0] == one["name"]]
        assert all(word in line for word in (one["serial"], one["model"], one["wwn"]))
    reasons = {line.split()[0]: line for line in lines}
    assert "it is rotational" in reasons["sda"]
    assert "does not match" in reasons["sdb"]
    assert "it has no size" in reasons["sdd"]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (None, "exactly one of"),
        ({}, "exactly one of"),
        ({"rotational": True}, "it has none"),
        ({"wwn": "1", "serial": "2"}, "it has wwn and serial"),
        ({"wwn": " "}, "empty"),
        ({"size": "1"}, "has no size"),
        ({"smallest": False}, "true or left out"),
        ({"raid": {"wwn": ["1"]}}, "at least two"),
        ({"raid": {"wwn": ["0x1", "1"]}}, "twice"),
        ({"raid": ["1", "2"]}, "at least two"),
        ({"min_size": "big"}, "root_device_hints.min_size: 'big' is no size"),
        ({"min_size": "0G"}, "is nothing"),
        ({"min_size": "-5G"}, "is no size"),
        ({"min_size": "5i"}, "is no size"),
        ({"by_id": "sda"}, "kernel's name"),
        ({"wwn": str(0x5002538D40AA0001)}, "is what YAML makes of 0x5002538d40aa0001; write it in quotes"),
        ({"raid": {"wwn": ["0x5002538d40aa0001", 0x5002538D40AA0002]}}, "raid.wwn: .* 0x5002538d40aa0002; write it"),
        ({"wwn": str(0x600508B1001C4F7B2A9E0D3C5F6A7B8C)}, "makes of 0x600508b1001c4f7b2a9e0d3c5f6a7b8c; write it"),
        ({"wwn": str(0x0025385B71B00001)}, "makes of 0x0025385b71b00001; write it"),
        ({"wwn": str(0xE8238FA6BF530001)}, "makes of 0xe8238fa6bf530001; write it"),
        ({"serial": "/dev/nvme0n1"}, "kernel's name"),
    ],
)
def test_hints_that_never_lead_to_disks(wanted, reason):
    with pytest.raises(disk_names.HintError, match=reason):
        disk_names.check(wanted)


def test_unset_hints_do_not_count():
    assert disk_names.check({"wwn": "x", "serial": None, "smallest": None}) == {"wwn": "x"}


@pytest.mark.parametrize("query", ["[?", "foo(", ""])
def test_a_query_that_is_none_is_found_before_any_disk_is_looked_at(query):
    with pytest.raises(disk_names.HintError, match="no JMESPath"):
        machine_disks.check_query(query)


def test_without_the_library_the_error_names_the_package(monkeypatch):
    monkeypatch.setattr(machine_disks, "MISSING", True)
    with pytest.raises(disk_names.HintError, match="pip install jmespath"):
        machine_disks.check_query("[0]")


@pytest.mark.parametrize(
    ("text", "size"),
    [("480G", 480 * 10**9), ("480GB", 480 * 10**9), ("447GiB", 447 << 30), ("447Gi", 447 << 30), ("512", 512)]
    + [("1.5T", 1_500_000_000_000), ("0.5 KiB", 512), ("2m", 2_000_000)],
)
def test_sizes(text, size):
    assert disk_names.size_of(text) == size


def test_two_paths_to_one_disk_are_never_one_answer():
    found = disk_facts.facts(recorded.odd())
    with pytest.raises(disk_names.HintError, match="means 2 disks"):
        disk_names.choose({"wwn": "0x500a07510a1b2c3d"}, found)
    with pytest.raises(disk_names.Unresolved, match="several"):
        disk_names.one("3500A07510A1B2C3", found)


WWN = st.integers(1, 2**64 - 1).map("{:016x}".format)


@recorded.CALM
@given(st.lists(WWN, min_size=1, max_size=6, unique=True), st.data())
def test_a_wwn_in_any_form_means_the_disk_that_has_it(numbers, data):
    disks = [disk(f"sd{chr(97 + place)}", wwn="0x" + number) for place, number in enumerate(numbers)]
    wanted = data.draw(st.sampled_from(numbers))
    form = data.draw(st.sampled_from(["{}", "0x{}", "wwn-0x{}", "0X{}", "/dev/disk/by-id/wwn-0x{}", "naa.{}"]))
    written = (
        form.format(wanted)
        if form == "0X{}"
        else data.draw(st.sampled_from([form.format(wanted), form.format(wanted.upper())]))
    )
    (found,) = disk_names.choose({"wwn": written}, disks)
    assert found["wwn"] == "0x" + wanted


SMALL = st.builds(
    disk,
    st.just("sda"),
    st.integers(0, 5),
    wwn=st.sampled_from(["", "0x1", "0x2"]),
    serial=st.sampled_from(["", "A", "B"]),
    model=st.sampled_from(["", "M"]),
    kind=st.sampled_from(["nvme", "sata", "usb"]),
    removable=st.booleans(),
    read_only=st.booleans(),
    rotational=st.booleans(),
)
WANTED = st.sampled_from(
    [
        {"wwn": "1"},
        {"serial": "A"},
        {"model": "m"},
        {"min_size": "2"},
        {"smallest": True},
        {"smallest": True, "kind": "nvme"},
    ]
    + [{"raid": {"wwn": ["1", "2"]}}, {"min_size": "1", "rotational": False}]
)


@recorded.CALM
@given(st.lists(SMALL, max_size=6), WANTED)
def test_never_a_disk_that_must_not_be_chosen_never_a_guess(disks, wanted):
    disks = [dict(one, name=f"sd{chr(97 + place)}") for place, one in enumerate(disks)]
    try:
        found = disk_names.choose(wanted, disks)
    except disk_names.HintError as exc:
        assert all(one["name"] in str(exc) for one in disks)
        return
    assert len(found) == (2 if "raid" in wanted else 1)
    for one in found:
        assert not one["removable"]
        assert not one["read_only"]
        assert one["size"] > 0
        assert one["kind"] == wanted.get("kind", one["kind"])
    # The same question about the same disks in another order has the same answer.
    again = disk_names.choose(wanted, list(reversed(disks)))
    assert {one["name"] for one in again} == {one["name"] for one in found}


def test_names_for_other_modules():
    assert disk_names.strings(DISKS[2:3], DISKS, "short") == ["nvme0n1"]
    assert disk_names.strings(DISKS[2:3], DISKS, "wwn") == ["eui.0025385b71b00001"]
    assert disk_names.strings(DISKS[2:3], DISKS, "by-id") == ["nvme-SAMSUNG_S1"]
    with pytest.raises(disk_names.Unresolved, match="device_strings"):
        disk_names.strings(DISKS[3:4], DISKS, "by-id")
    assert [one["name"] for one in disk_names.resolve(["S2", "0X50014EE2B1A00001"], DISKS)] == ["nvme1n1", "sda"]
    with pytest.raises(disk_names.Unresolved, match="same disk"):
        disk_names.resolve(["S2", "eui.0025385b71b00002"], DISKS)
    with pytest.raises(disk_names.Unresolved, match="another disk after the next boot"):
        disk_names.one("sda", DISKS)
    with pytest.raises(disk_names.Unresolved, match="there are: sda"):
        disk_names.one("missing", DISKS)
    with pytest.raises(disk_names.Unresolved, match="no disk has the name, WWN, serial number or by-id name 'sdz'"):
        disk_names.one("sdz", DISKS)


def test_a_name_that_two_disks_have_is_stable_for_neither():
    twins = [disk("sda", serial="X", wwn="0x1"), disk("sdb", serial="X", wwn="0x1", by_id=["scsi-b"])]
    assert disk_names.stable(twins[0], twins) == ""
    assert disk_names.stable(twins[1], twins) == "scsi-b"


@pytest.mark.parametrize(("value", "shown"), [(False, "false"), ("false", '"false"'), (0, "0"), ([1], '"[1]"')])
def test_a_wrong_value_of_smallest_is_shown(value, shown):
    with pytest.raises(disk_names.HintError) as failure:
        disk_names.check({"smallest": value})
    assert str(failure.value) == f"root_device_hints.smallest is {shown}; it is either true or left out"


def test_a_line_to_copy_for_each_disk_and_for_equal_ones():
    found = disk_names.to_copy(DISKS)
    assert found == [
        "kubenode_root_device_hints: {serial: WD1}  # sda, 4 TB sata (turning)",
        "kubenode_root_device_hints: {serial: IN1}  # sdb, 480 GB sata",
        "kubenode_root_device_hints: {serial: S1}  # nvme0n1, 512 GB nvme",
        "kubenode_root_device_hints: {serial: S2}  # nvme1n1, 512 GB nvme",
        "kubenode_root_device_hints: {raid: {wwn: [eui.0025385b71b00001, eui.0025385b71b00002]}}"
        "  # nvme0n1 and nvme1n1",
    ]
    for line, names in zip(found, [["sda"], ["sdb"], ["nvme0n1"], ["nvme1n1"], ["nvme0n1", "nvme1n1"]], strict=True):
        wanted = yaml.safe_load(line)["kubenode_root_device_hints"]
        assert [one["name"] for one in disk_names.choose(wanted, DISKS)] == names


def test_nothing_is_copied_that_ansible_would_evaluate():
    named = disk("sda", 1 << 30, serial="{{ lookup('pipe', 'id') }}", wwn="0x01")
    assert disk_names.to_copy([named]) == ["kubenode_root_device_hints: {wwn: '0x01'}  # sda, 1.1 GB sata"]
    assert disk_names.to_copy([{**named, "wwn": "{%1%}"}]) == []


@given(st.lists(st.tuples(st.text(max_size=8), st.sampled_from(["", "w1", "w2", "0x01"])), min_size=1, max_size=3))
@example([("0012", ""), ("12", "")])
@example([("null", ""), ("1e3", "w1")])
@example([("a\n- b: {", "w1"), ("same", "w2"), ("same", "")])
def test_what_is_copied_means_this_disk_whatever_it_is_called(about):
    disks = [
        disk(f"sd{letter}", 1 << 30, serial=serial, wwn=wwn)
        for letter, (serial, wwn) in zip("abc", about, strict=False)
    ]
    for line in disk_names.to_copy(disks):
        assert len(line.splitlines()) == 1
        wanted = yaml.safe_load(line)["kubenode_root_device_hints"]
        names = line.rpartition("  # ")[2].split(",")[0].split(" and ")
        assert [one["name"] for one in disk_names.choose(wanted, disks)] == names
