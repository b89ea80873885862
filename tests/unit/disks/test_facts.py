# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of disks, from what the tools print."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import targets
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import (
    disk_facts,
    disk_gather,
    disk_tools,
    wiping,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks import disk_facts as table
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_tools import Tools
from tests.unit.disks import recorded

CANNOT_BE_READ = "it cannot be read, so what it holds is unknown"


def of(raw: disk_facts.Raw) -> dict[str, dict]:
    return {disk["name"]: disk for disk in disk_facts.facts(raw)}


def held(disk: dict) -> list[tuple[str, str]]:
    return [(entry["kind"], entry["device"]) for entry in disk["holds"]]


def test_raid_with_volumes_on_two_disks():
    found = of(recorded.raid1_with_lvm())
    assert list(found) == ["sda", "nvme0n1", "nvme1n1"]
    for index in (0, 1):
        disk = found[f"nvme{index}n1"]
        assert held(disk) == [
            ("table", f"nvme{index}n1"),
            ("raid", f"nvme{index}n1p1"),
            ("raid", f"nvme{index}n1p2"),
            ("filesystem", "md0"),
            ("lvm", "md1"),
            ("system", "vg0-root"),
            ("swap", "vg0-swap"),
        ]
        assert [entry["disks"] for entry in disk["holds"]] == [[disk["name"]]] + [["nvme0n1", "nvme1n1"]] * 6
        assert disk["holds"][0]["detail"] == "2 partitions"
        assert disk["holds"][1]["detail"] == "RAID1 over nvme0n1p1, nvme1n1p1 (2 of 2)"
        assert disk["holds"][4]["detail"] == "volume group vg0 (root, swap)"
        system = disk["holds"][5]
        assert (system["system"], system["installed"]) == ("Debian GNU/Linux 12 (bookworm)", {"machine": "node-1"})
    assert found["nvme0n1"]["kind"] == "nvme"
    assert found["sda"]["holds"] == []
    assert found["sda"]["rotational"] is True


def test_a_raid_that_was_not_started_still_spans_its_disks():
    disks = [recorded.nvme(index, (recorded.block(f"nvme{index}n1p1", recorded.GIB, "part"),)) for index in (0, 1)]
    member = recorded.content("linux_raid_member", "raid", recorded.ARRAY)
    raw = disk_facts.Raw(
        recorded.lsblk(*disks),
        blkid={"nvme0n1": recorded.gpt(), "nvme1n1": recorded.gpt(), "nvme0n1p1": member, "nvme1n1p1": member},
    )
    assert of(raw)["nvme1n1"]["holds"][1]["disks"] == ["nvme0n1", "nvme1n1"]


def test_windows_and_a_stick():
    found = of(recorded.windows())
    assert [(entry["kind"], entry["type"], entry["label"]) for entry in found["sda"]["holds"]] == [
        ("table", "gpt", ""),
        ("system", "vfat", "SYSTEM"),
        ("unknown", "", ""),
        ("filesystem", "ntfs", "Windows Server"),
    ]
    assert found["sda"]["holds"][2]["detail"] == "Microsoft reserved partition"
    assert (found["sdb"]["kind"], found["sdb"]["removable"]) == ("usb", True)


@pytest.mark.parametrize(("kind", "uuid"), [("zfs_member", "12345678901234567890"), ("btrfs", "deadbeef")])
def test_file_systems_over_several_disks(kind, uuid):
    found = of(recorded.spanning(kind, uuid))
    for name in ("sda", "sdb"):
        (entry,) = found[name]["holds"]
        assert (entry["kind"], entry["type"], entry["disks"]) == ("filesystem", kind, ["sda", "sdb"])
        assert entry["detail"] == "over sda, sdb"
    assert found["sdc"]["holds"][0]["disks"] == ["sdc"], "a copy of a label or UUID alone binds nothing together"


def test_odd_disks():
    found = of(recorded.odd())
    assert list(found) == ["sda", "sdb", "sdc", "sdd", "sde", "sdf"], "no memory, no CD, no loop device"
    (luks,) = found["sda"]["holds"]
    assert (luks["kind"], luks["detail"]) == ("crypt", "version 2")
    assert found["sda"]["health"]["status"] == "failed"
    assert found["sdb"]["holds"] == []
    assert found["sdc"]["read_only"] is True
    assert [entry["kind"] for entry in found["sdf"]["holds"]] == ["unknown"], "data of no known kind is not nothing"


def test_without_lvm_physical_volumes_may_belong_together():
    volume = recorded.content("LVM2_member", "raid", "x")
    raw = disk_facts.Raw(recorded.lsblk(recorded.sata("a"), recorded.sata("b")), blkid={"sda": volume, "sdb": volume})
    assert of(raw)["sda"]["holds"][0]["disks"] == ["sda", "sdb"]
    known = disk_facts.Raw(
        recorded.lsblk(recorded.sata("a"), recorded.sata("b")),
        blkid={"sda": volume, "sdb": volume},
        pvs=recorded.report("pv", {"pv_name": "/dev/sda", "vg_name": "a"}, {"pv_name": "/dev/sdb", "vg_name": ""}),
    )
    assert of(known)["sda"]["holds"][0]["disks"] == ["sda"]


def test_without_any_tool_but_lsblk_a_disk_is_never_said_to_be_empty():
    found = of(disk_facts.Raw(recorded.lsblk(recorded.sata("a"), recorded.sata("b", fstype="xfs", uuid="1"))))
    assert [entry["detail"] for entry in found["sda"]["holds"]] == [CANNOT_BE_READ]
    assert [entry["type"] for entry in found["sdb"]["holds"]] == ["xfs"]


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ({"edges": {"sda": False}}, []),
        ({"edges": {"sda": False}, "lost": {"sda": None}}, []),
        ({"edges": {}}, [CANNOT_BE_READ]),
        ({"edges": {"sda": False}, "lost": {"sda": (0, "")}}, [CANNOT_BE_READ]),
        ({"edges": {"sda": False}, "lost": {"sda": (2 << 20, "TYPE=ext4\nUUID=1\n")}},
         ["at 2 MiB, in no partition: a partition table may be lost"]),
        ({"edges": {"sda": False}, "lost": {"sda": (63 * 512, "TYPE=LVM2_member\n")}},
         ["at 31 KiB, in no partition: a partition table may be lost"]),
        ({"edges": {"sda": False}, "lost": {"sda": (1 << 20, "")}}, [CANNOT_BE_READ]),
    ],
)  # fmt: skip
def test_a_disk_that_cannot_be_read_is_not_empty(more, holds):
    """blkid finds nothing in each of them: exit code 2, or 1 where it cannot read."""
    raw = disk_facts.Raw(recorded.lsblk(recorded.sata("a")), blkid={"sda": recorded.FREE}, **more)
    found = of(raw)["sda"]["holds"]
    assert [entry["detail"] for entry in found] == holds
    assert {entry["kind"] for entry in found} <= {"unknown"}


def test_a_partition_that_cannot_be_read_is_not_empty_either():
    parts = (recorded.block("sda1", recorded.GIB, "part"), recorded.block("sda2", 0, "part"))
    raw = disk_facts.Raw(
        recorded.lsblk(recorded.sata("a", parts)), blkid={"sda": recorded.gpt(), "sda1": (1, ""), "sda2": (1, "")}
    )
    assert [(entry["device"], entry["detail"]) for entry in of(raw)["sda"]["holds"]] == [
        ("sda", "2 partitions"), ("sda1", CANNOT_BE_READ),
    ]  # fmt: skip


def test_a_lost_file_system_is_a_content_to_agree_on():
    def content(uuid: str) -> str:
        lost = {"sda": (2 << 20, f"TYPE=ext4\nUUID={uuid}\n")}
        blank = {"blkid": {"sda": recorded.FREE}, "edges": {"sda": False}, "lost": lost}
        return of(disk_facts.Raw(recorded.lsblk(recorded.sata("a")), **blank))["sda"]["content_id"]

    assert content("1") != content("2")


# --- a disk as bytes


def tools() -> Tools:
    def run(argv: list) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return Tools(run)


def swap_at(path: Path, offset: int, size: int = 80 << 20) -> None:
    """A disk with a swap area at this place, and nothing else."""
    header = bytearray(4096)
    header[1024:1032] = struct.pack("<II", 1, 255)
    header[4086:] = b"SWAPSPACE2"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(offset)
        file.write(header)


@pytest.mark.parametrize("offset", [63 * 512, 1 << 20, 2 << 20, 64 << 20, (80 << 20) - 4096])
@pytest.mark.parametrize("punches", [True, False])
def test_a_file_system_is_found_where_partitions_begin_and_erased_with_the_rest(tmp_path, monkeypatch, offset, punches):
    if not punches:  # a disk that cannot make zeros of its own
        monkeypatch.setattr(wiping, "_PUNCH", 0x100)
    disk = tmp_path / "disk"
    swap_at(disk, offset)
    size = disk.stat().st_size
    # The first MiB is looked at as a whole.
    edge = offset < disk_gather.EDGE or offset >= size - disk_gather.EDGE
    assert disk_gather.has_data(str(disk), size) is edge
    if offset <= disk_gather.STARTS[-1]:
        found, text = disk_gather.lost(tools(), str(disk), size)
        assert (found, "TYPE=swap" in text) == (offset, True)
    wiping.zero_edges(str(disk), size, disk_gather.FIRST)
    assert disk_gather.lost(tools(), str(disk), size) is None
    assert not any(disk.read_bytes())


def test_a_blank_or_small_disk_has_nothing_lost_and_for_one_that_is_gone_it_is_unknown(tmp_path):
    disk = tmp_path / "disk"
    for size in (0, 1 << 20, 3 << 20):
        disk.write_bytes(b"\xff" * size)
        assert disk_gather.lost(tools(), str(disk), size) is None
        assert disk_gather.has_data(str(disk), size) is False
        wiping.zero_edges(str(disk), size, disk_gather.FIRST)
        assert disk.stat().st_size == size
    assert disk_gather.has_data(str(tmp_path / "none"), 1 << 20) is None
    assert disk_gather.lost(tools(), str(tmp_path / "none"), 2 << 20) == (0, "")


class Counted(Tools):
    """All tools are there, and say this of every disk; ``asked``: their names, in order."""

    def __init__(self, **said: str) -> None:
        self.asked: list[str] = []
        super().__init__(lambda argv: (0, said.get(os.path.basename(argv[3]), ""), ""))

    def find(self, name: str) -> str:
        return f"/usr/sbin/{name}"

    def __call__(self, name: str, *arguments: object, limit: float = 120) -> tuple[int, str, str]:
        self.asked.append(name)
        return super().__call__(name, *arguments, limit=limit)


VOLUMES = json.dumps({"report": [{"pv": [{"pv_name": "/dev/sda", "vg_name": "vg0"}]}]})


@pytest.mark.parametrize(
    ("blkid", "wipefs", "more"),
    [
        ("PTTYPE=gpt\n", "", []),
        ("TYPE=LVM2_member\n", "", ["lvm"] * 3),
        ("", '{"signatures": [{"type": "LVM2_member"}]}', ["lvm"] * 3),
    ],
)
def test_a_look_asks_each_tool_once_and_lvm_only_where_there_are_volumes(monkeypatch, blkid, wipefs, more):
    tools = Counted(lsblk=recorded.lsblk(recorded.sata("a")), blkid=blkid, wipefs=wipefs, lvm=VOLUMES)
    monkeypatch.setattr(targets, "Tools", lambda _run, **_how: tools)
    targets.look_at_disks(lambda *_given, **_more: (0, "", ""))
    assert tools.asked == ["udevadm", "lsblk", "blkid", "wipefs", *more, "smartctl"]


def test_partitions_come_in_order_from_any_lsblk():
    parts = [recorded.block(f"sda{number}", recorded.GIB, "part") for number in (10, 2, 1)]
    blkid = {f"sda{number}": recorded.content("ext4", "filesystem", str(number)) for number in (10, 2, 1)}
    raw = disk_facts.Raw(recorded.lsblk(recorded.sata("a", tuple(parts))), blkid={"sda": recorded.gpt(), **blkid})
    assert [entry["device"] for entry in of(raw)["sda"]["holds"]] == ["sda", "sda1", "sda2", "sda10"]


def test_two_contents_at_once_are_both_reported():
    signatures = [
        {"type": "ext4", "uuid": "1", "label": "old", "usage": "filesystem"},
        {"type": "zfs_member", "uuid": "2", "label": "tank", "usage": "filesystem"},
        {"type": "zfs_member", "uuid": "2", "label": "tank", "usage": "filesystem"},
    ]
    raw = disk_facts.Raw(
        recorded.lsblk(recorded.sata("a")),
        blkid={"sda": (8, "")},
        wipefs={"sda": json.dumps({"signatures": signatures})},
    )
    assert [entry["type"] for entry in of(raw)["sda"]["holds"]] == ["ext4", "zfs_member"]


def test_a_protective_or_boot_record_adds_no_table():
    def types(*found, blkid):
        listing = json.dumps(
            {"signatures": [{"type": kind, "usage": None, "uuid": None, "label": None} for kind in found]}
        )
        raw = disk_facts.Raw(recorded.lsblk(recorded.sata("a")), blkid={"sda": blkid}, wipefs={"sda": listing})
        return [entry["type"] for entry in of(raw)["sda"]["holds"]]

    assert types("gpt", "PMBR", blkid=recorded.gpt()) == ["gpt"]
    assert types("vfat", "dos", blkid=recorded.content("vfat", "filesystem")) == ["vfat"]
    assert types("gpt", blkid=recorded.FREE) == ["gpt"], "the table at the disk's end alone"


def test_mounts_and_swap_are_found_by_number_or_path():
    mountinfo = "31 1 252:0 / /mnt/old\\040one rw,relatime - ext4 /dev/mapper/vg0-root rw\n"
    swaps = "Filename\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/dm-1  partition\t8388604\t0\t-2\n"
    found = of(recorded.raid1_with_lvm(mountinfo=mountinfo, swaps=swaps))["nvme0n1"]["holds"]
    assert [(entry["device"], entry["mounts"]) for entry in found if entry["in_use"]] == [
        ("vg0-root", ["/mnt/old one"]),
        ("vg0-swap", []),
    ]


def test_content_id_changes_with_content_alone():
    raw = recorded.raid1_with_lvm()
    one = disk_facts.content_id(raw, raw.nodes["nvme0n1"])
    idle = recorded.raid1_with_lvm(systems={}, lvs="")
    assert disk_facts.content_id(idle, idle.nodes["nvme0n1"]) == one, "what lies on RAID may be started or not"
    other = recorded.raid1_with_lvm()
    other.blkid["nvme0n1p1"] = recorded.content("ext4", "filesystem", "new")
    assert disk_facts.content_id(other, other.nodes["nvme0n1"]) != one


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        (*recorded.smart(True), "passed"),
        (*recorded.smart(True, 64), "passed"),
        (*recorded.smart(True, 16), "passed"),
        (*recorded.smart(False, 8), "failed"),
        (8, "{}", "failed"),
        (2, '{"smartctl": {"messages": [{"string": "open failed", "severity": "error"}]}}', "unknown"),
        (1, "smartctl: unrecognized option", "unknown"),
        (0, "[]", "unknown"),
    ],
)
def test_smart(code, text, status):
    assert disk_tools.smart(code, text)["status"] == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"critical_warning": 0}', "passed"),
        ('{"critical_warning": 2}', "passed"),
        ('{"critical_warning": 4}', "failed"),
        ('{"critical_warning": {"value": 8, "read_only": 1}}', "failed"),
        ("{}", "unknown"),
        ("", "unknown"),
    ],
)
def test_nvme_log(text, status):
    assert disk_tools.nvme_log(0, text)["status"] == status


def test_readable_links_come_first_and_those_of_volumes_never():
    links = {
        "wwn-0x50014ee2b1a00001": "sda",
        "ata-WDC_WD4000FYYZ-01UL1B1_WD-WCC4E00000A": "sda",
        "scsi-SATA_WDC_WD4000FYYZ": "sda",
        "lvm-pv-uuid-abc": "sda",
        "ata-WDC-part1": "sda1",
    }
    (disk,) = disk_facts.identities(disk_facts.Raw(recorded.lsblk(recorded.sata("a")), by_id=links))
    assert disk["by_id"] == [
        "ata-WDC_WD4000FYYZ-01UL1B1_WD-WCC4E00000A",
        "scsi-SATA_WDC_WD4000FYYZ",
        "wwn-0x50014ee2b1a00001",
    ]


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (512110190592, "512 GB"), (4000787030016, "4 TB"), (1 << 20, "1 MB"), (999_999_999_999, "1 TB")],
)
def test_size_words(size, words):
    assert disk_tools.size_words(size) == words


def test_control_characters_of_a_label_are_never_shown():
    raw = disk_facts.Raw(
        recorded.lsblk(recorded.sata("a", model="evil\x1b[2Jmodel\u202e")),
        blkid={"sda": recorded.content("ext4", "filesystem", "1", "bad\x1b]0;x\x07")},
    )
    text = "\n".join(table.disk_lines(disk_facts.facts(raw)))
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("record", ["", "x", "[]", "{}", '{"machine": ""}', '{"machine": null}', "[" * 99999])
def test_a_damaged_record_is_none(record):
    assert disk_facts.record_of(record) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kname", "name", "type", "children", "size", "blockdevices", "rm"]), inner, max_size=5
        )
    ),
    max_leaves=20,
)


@recorded.CALM
@given(JSON, JSON, st.text(max_size=200))
def test_no_output_of_a_tool_crashes_anything(one, two, text):
    try:
        raw = disk_facts.Raw(
            json.dumps({"blockdevices": one}),
            blkid={"sda": (0, text)},
            wipefs={"sda": json.dumps(two)},
            pvs=json.dumps(two),
        )
    except disk_tools.ParseError:
        return
    found = disk_facts.facts(raw)
    table.disk_lines(found)
    json.dumps(found)
