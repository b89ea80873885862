# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout rules: each refusal names field, value and fix, and what is fine passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import layout as layouts
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import rescue_program
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.layout import Layout
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.processes import Refused
from tests import real_verdicts
from tests.unit.installimage.specifications import specified

GIB = 1024**3


def part(mount: str, filesystem: str = "ext4", size: str = "2G", crypt: bool = False) -> dict:
    return {"mount": mount, "filesystem": filesystem, "size": size, "crypt": crypt}


def volume(name: str, mount: str = "/srv", filesystem: str = "ext4", size: str = "2G", vg: str = "vg0") -> dict:
    return {"vg": vg, "name": name, "mount": mount, "filesystem": filesystem, "size": size}


ESP, BOOT, ROOT = part("/boot/efi", "esp", "256M"), part("/boot", size="1G"), part("/", size="all")
ROOT_2G, LVM = part("/"), part("lvm", "vg0", "all")

FINE = {
    "root only": Layout([ROOT]),
    "boot and root": Layout([BOOT, ROOT]),
    "swap": Layout([part("swap", "swap", "4G"), BOOT, ROOT]),
    "bios_grub": Layout([part("none", "bios_grub", "1M"), BOOT, ROOT]),
    "lvm": Layout([BOOT, LVM], [volume("root", "/"), volume("swap", "swap", "swap"), volume("x", "/x", size="all")]),
    "two groups": Layout(
        [BOOT, part("lvm", "vg0", "4G"), part("lvm", "vg1", "all")],
        [volume("root", "/", size="all"), volume("root", "/data", vg="vg1", size="all")],
    ),
    "btrfs": Layout([BOOT, part("btrfs.1", "btrfs", "all")], [], [
        {"volume": "btrfs.1", "subvolume": "@", "mount": "/"},
        {"volume": "btrfs.1", "subvolume": "@home", "mount": "/home"},
    ]),
    "root in a subvolume": Layout([part("btrfs.1", "btrfs", "all")], [], [
        {"volume": "btrfs.1", "subvolume": "@", "mount": "/"}
    ]),
    "mirror": Layout([BOOT, ROOT], swraid=1, level=1),
    "raid 5": Layout([BOOT, ROOT], swraid=1, level=5),
    "encrypted": Layout([BOOT, part("/", size="all", crypt=True)]),
}  # fmt: skip

#: what is wrong → layout, and what the finding says of field and fix
WRONG = {
    "two all": (Layout([BOOT, part("/", size="all"), part("/var", size="all")]), "partitions[2].size", "last one only"),
    "all not last": (Layout([BOOT, part("/", size="all"), part("/var")]), "partitions[1].size", "put this one last"),
    "size without unit": (Layout([part("/", size="512")]), "partitions[0].size", "M, G or T"),
    "size zero": (Layout([part("/", size="0G")]), "partitions[0].size", "M, G or T"),
    "size in words": (Layout([part("/", size="1 G")]), "partitions[0].size", "M, G or T"),
    "unknown file system": (Layout([part("/", "zfs")]), "partitions[0].filesystem", "use one of"),
    "relative mount": (Layout([part("boot"), ROOT]), "partitions[0].mount", "a path such as"),
    "climbing mount": (Layout([part("/var/../etc"), ROOT]), "partitions[0].mount", "a path such as"),
    "slash at the end": (Layout([part("/var/"), ROOT]), "partitions[0].mount", "a path such as"),
    "line break": (Layout([part("/var\nPART /x ext4 1G"), ROOT]), "partitions[0].mount", "a path such as"),
    "mounted twice": (Layout([ROOT_2G, part("/var"), part("/var", size="all")]), "partitions[2].mount", "once"),
    "mounted twice in lvm": (Layout([BOOT, part("/"), LVM], [volume("a", "/")]), "logical_volumes[0].mount", "once"),
    "no root": (Layout([BOOT, part("/var", size="all")]), "partitions", "{mount: /, "),
    "small root": (Layout([part("/", size="1499M")]), "partitions[0].size", "1500M"),
    "small boot": (Layout([part("/boot", size="199M"), ROOT]), "partitions[0].size", "200M"),
    "small esp": (Layout([part("/boot/efi", "esp", "255M"), ROOT]), "partitions[0].size", "256M"),
    "esp on all": (Layout([BOOT, part("/"), part("/boot/efi", "esp", "all")]), "partitions[2].size", "256M"),
    "esp elsewhere": (Layout([part("/efi", "esp", "256M"), ROOT]), "partitions[0]", "mount: /boot/efi"),
    "efi folder without esp": (Layout([part("/boot/efi"), ROOT]), "partitions[0]", "filesystem: esp"),
    "swap mounted": (Layout([part("/swap", "swap"), ROOT]), "partitions[0]", "mount: swap"),
    "swap as ext4": (Layout([part("swap", "ext4"), ROOT]), "partitions[0]", "filesystem: swap"),
    "root only in lvm": (Layout([LVM], [volume("root", "/")]), "partitions", "{mount: /boot,"),
    "boot after three others": (
        Layout([part("/a"), part("/b"), part("/c"), BOOT, ROOT]), "partitions", "first three"),
    "raid 0 without boot": (Layout([ROOT], swraid=1, level=0), "RAID level 0", "{mount: /boot,"),
    "raid 5 without boot": (Layout([ROOT], swraid=1, level=5), "RAID level 5", "{mount: /boot,"),
    "unknown group": (Layout([BOOT, ROOT], [volume("a")]), "logical_volumes[0].vg", "{mount: lvm, filesystem: vg0"),
    "volume twice": (Layout([BOOT, LVM], [volume("a", "/"), volume("a", "/x")]), "logical_volumes[1].name", "twice"),
    "volume after all": (
        Layout([BOOT, LVM], [volume("a", "/", size="all"), volume("b")]), "logical_volumes[1]", "last"),
    "volume name": (Layout([BOOT, LVM], [volume("a b", "/")]), "logical_volumes[0].name", "letters"),
    "group name": (Layout([BOOT, part("lvm", "v;g", "all")], []), "partitions[1].filesystem", "letters"),
    "empty group": (Layout([BOOT, part("/"), LVM]), "volume group \"vg0\"", "logical_volumes"),
    "volume as esp": (Layout([BOOT, LVM], [volume("a", "/", "esp")]), "logical_volumes[0].filesystem", "use ext2"),
    "no btrfs volume": (
        Layout([BOOT, ROOT], [], [{"volume": "btrfs.1", "subvolume": "@", "mount": "/x"}]),
        "subvolumes[0].volume", "btrfs.1"),
    "empty btrfs volume": (Layout([BOOT, part("btrfs.1", "btrfs", "all")]), "btrfs.1", "subvolumes"),
    "btrfs volume as ext4": (Layout([BOOT, part("btrfs.1", "ext4", "all")]), "partitions[1].filesystem", "btrfs"),
    "encrypted boot": (Layout([part("/boot", size="1G", crypt=True), ROOT]), "partitions[0].crypt", "unencrypted"),
    "encrypted root alone": (Layout([part("/", size="all", crypt=True)]), "partitions[0].crypt", "/boot of its own"),
}  # fmt: skip


@pytest.mark.parametrize("layout", FINE.values(), ids=FINE)
def test_what_is_fine_passes(layout):
    assert layouts.check_layout(layout) == []


@pytest.mark.parametrize(("layout", "field", "fix"), WRONG.values(), ids=WRONG)
def test_each_refusal_names_field_and_fix(layout, field, fix):
    findings = layouts.check_layout(layout)
    assert [text for text in findings if field in text and fix in text], findings


def test_a_single_mistake_gives_a_single_finding():
    for name in ("two all", "no root", "small root", "mounted twice", "raid 0 without boot"):
        assert len(layouts.check_layout(WRONG[name][0])) == 1, name


@pytest.mark.parametrize("uefi", [True, False])
def test_the_default_layout_keeps_the_rules(uefi):
    layout = Layout(layouts.default_partitions(uefi))
    assert layouts.check_layout(layout) + layouts.check_firmware(layout, uefi) == []


def test_firmware_decides_about_the_esp():
    with_esp, without = Layout([ESP, BOOT, ROOT]), Layout([BOOT, ROOT])
    assert layouts.check_firmware(with_esp, True) == layouts.check_firmware(without, False) == []
    assert "there is no ESP" in layouts.check_firmware(without, True)[0]
    assert "there are 2 ESPs" in layouts.check_firmware(Layout([ESP, ESP, ROOT]), True)[0]
    assert layouts.check_firmware(with_esp, False) == []
    assert "ESP stays empty" in layouts.firmware_warnings(with_esp, False)[0]
    assert layouts.firmware_warnings(with_esp, True) == layouts.firmware_warnings(without, False) == []


def spec_of(row: real_verdicts.Row) -> dict:
    """The options of a user who wants this configuration."""
    fields: dict = {"devices": ["wwn-0x1"], "hostname": "node1", "partitions": [], "logical_volumes": []}
    fields.update(autosetup={}, subvolumes=[], swraid_level=1)
    for line in row.lines:
        key, *words = line.split()
        if key == "PART":
            fields["partitions"].append(part(*words[:3], crypt=words[3:] == ["crypt"]))
        elif key == "LV":
            fields["logical_volumes"].append(
                dict(zip(("vg", "name", "mount", "filesystem", "size"), words, strict=True))
            )
        elif key == "SUBVOL":
            fields["subvolumes"].append(dict(zip(("volume", "subvolume", "mount"), words, strict=True)))
        elif key in ("SWRAID", "SWRAIDLEVEL"):
            fields[{"SWRAID": "swraid", "SWRAIDLEVEL": "swraid_level"}[key]] = int(words[0])
        elif key in ("HOSTNAME", "CRYPTPASSWORD"):
            fields[{"HOSTNAME": "hostname", "CRYPTPASSWORD": "crypt_password"}[key]] = words[0]
        elif key == "DRIVE2":
            fields["devices"].append("wwn-0x2")
        else:
            fields["autosetup"][key] = words[0]
    image = {"kind": "name", "location": f"/x/{row.image}", "file_name": row.image, "digest": "", "shown": row.image}
    return specified(machine="node1", image=image, **fields)


@pytest.mark.parametrize("row", real_verdicts.ROWS, ids=[row.name for row in real_verdicts.ROWS])
def test_what_we_say_of_what_the_real_one_was_given(row):
    spec = spec_of(row)
    found = specs.findings(spec)
    try:
        rescue_program.check_spec(spec, row.uefi, [real_verdicts.DRIVE_BYTES] * len(spec["devices"]), "x86_64")
    except Refused as error:
        found.append(str(error))
    if row.ours:
        assert [text for text in found if row.ours in text], found
    else:
        assert found == []


@pytest.mark.parametrize(
    ("level", "count", "fine"),
    [(0, 1, False), (0, 2, True), (1, 1, False), (1, 2, True), (1, 3, True), (5, 2, False), (5, 3, True),
     (6, 3, False), (6, 4, True), (10, 1, False), (10, 2, True)],
)  # fmt: skip
def test_raid_levels_need_disks(level, count, fine):
    findings = layouts.check_disks(count, Layout([BOOT, ROOT], swraid=1, level=level))
    assert (findings == []) == fine
    if not fine:
        assert f"RAID level {level}" in findings[0]
        assert "swraid: 0" in findings[0]


def test_without_raid_there_is_one_disk():
    assert layouts.check_disks(1, Layout([ROOT])) == []
    assert "swraid: 1" in layouts.check_disks(2, Layout([ROOT]))[0]


def test_sizes_must_fit_the_smallest_disk():
    layout = Layout([part("/boot", size="1G"), part("/", size="6G")])
    assert layouts.check_capacity(layout, [8 * GIB]) == []
    assert "7168 MiB" in layouts.check_capacity(layout, [8 * GIB, 7 * GIB])[0]
    assert "are left for /" in layouts.check_capacity(Layout([part("/x", size="7G"), ROOT]), [8 * GIB])[0]


def test_a_striped_array_is_spread_over_the_disks():
    layout = Layout([BOOT, part("/", size="12G")], swraid=1, level=0)
    assert layouts.check_capacity(layout, [8 * GIB, 8 * GIB]) == []
    layout.level = 1
    assert "13312 MiB" in layouts.check_capacity(layout, [8 * GIB, 8 * GIB])[0]


def test_volumes_must_fit_their_group():
    layout = Layout([BOOT, LVM], [volume("a", "/", size="5G"), volume("b", size="3G")])
    assert layouts.check_capacity(layout, [11 * GIB]) == []
    assert "add up to 8192 MiB" in layouts.check_capacity(layout, [8 * GIB])[0]
    layout.swraid, layout.level = 1, 0
    assert layouts.check_capacity(layout, [8 * GIB, 8 * GIB]) == []
    layout.level = 1
    assert "only 6144 MiB" in layouts.check_capacity(layout, [8 * GIB, 8 * GIB])[0]


@given(st.lists(st.builds(
    part, st.text(max_size=12), st.sampled_from(["ext4", "esp", "swap", "none", "x y"]), st.text(max_size=6)
), max_size=4))  # fmt: skip
def test_any_input_ends_in_findings_or_is_harmless(parts):
    findings = layouts.check_layout(Layout(parts))
    if not findings:
        assert all(set(f"{one['mount']}{one['size']}") <= set(map(chr, range(33, 127))) for one in parts)
