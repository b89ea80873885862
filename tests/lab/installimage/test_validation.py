# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What installimage refuses before it begins: one reason each, in the words clients look for."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.installimage.emulator import config
from lab.installimage.emulator.config import Drive, Machine, first_error
from tests import real_verdicts

_GIB = 1 << 30
_IMAGE = "IMAGE /i/Debian-1200-bookworm-amd64-base.tar.zst"
_ONE = ["DRIVE1 /dev/sda"]
_TWO = ["DRIVE1 /dev/sda", "DRIVE2 /dev/sdb"]
_RAID = [*_TWO, "SWRAID 1", "SWRAIDLEVEL 1"]
_ROOT = ["PART /boot ext3 512M", "PART / ext4 all"]


def _refused(*lines: str, uefi: bool = False, stackable: bool = True, image: str = _IMAGE, busy: str = "") -> str:
    """The reason; empty when it is accepted."""
    drives = {f"/dev/sd{letter}": Drive(8 * _GIB, f"/dev/sd{letter}" == busy) for letter in "abcd"}
    text = "\n".join(["BOOTLOADER grub", "HOSTNAME node1", image, *lines])
    return first_error(config.parse(text), Machine("x86_64", uefi, drives, stackable)) or ""


@pytest.mark.parametrize(
    "lines",
    [
        [*_ONE, *_ROOT],
        [*_RAID, *_ROOT],
        [*_ONE, "PART / ext4 7000M"],
        [*_RAID, "PART /boot ext3 512M", "PART lvm vg0 all", "LV vg0 root / ext4 4G", "LV vg0 swap swap swap 1G"],
        [*_ONE, "PART /boot ext3 512M", "PART btrfs.1 btrfs all", "SUBVOL btrfs.1 @ /", "SUBVOL btrfs.1 @home /home"],
        [*_TWO, "DRIVE3 /dev/sdc", "SWRAID 1", "SWRAIDLEVEL 5", "PART /boot ext3 512M", "PART / ext4 14G"],
    ],
)
def test_what_is_right_is_accepted(lines: list[str]) -> None:
    assert _refused(*lines) == ""


def test_an_esp_is_accepted_where_there_is_uefi_and_where_there_is_none() -> None:
    assert _refused(*_ONE, "PART /boot/efi esp 256M", *_ROOT, uefi=True) == ""
    assert _refused(*_ONE, "PART /boot/efi esp 256M", *_ROOT) == ""


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (_ROOT, "ERROR: Value for DRIVE1 is not correct"),
        (["DRIVE1 /dev/sdz", *_ROOT], "ERROR: Value for DRIVE1 is not correct: /dev/sdz"),
        ([*_ONE, "SWRAID 1", *_ROOT], "ERROR: You need to select at least 2 disks for creating software raid!"),
        ([*_ONE, "SWRAID 2", *_ROOT], "ERROR: Value for SWRAID is not correct"),
        ([*_TWO, "SWRAID 1", "SWRAIDLEVEL 4", *_ROOT], "ERROR: Value for SWRAIDLEVEL is not correct"),
        ([*_TWO, "SWRAID 1", "SWRAIDLEVEL 5", *_ROOT], "ERROR: Not enough disks for RAID level 5"),
        (
            [*_TWO, "DRIVE3 /dev/sdc", "SWRAID 1", "SWRAIDLEVEL 6", *_ROOT],
            "ERROR: Not enough disks for RAID level 6",
        ),
        (
            [*_TWO, "SWRAID 1", "SWRAIDLEVEL 0", "PART / ext4 all"],
            "ERROR: You need a /boot partition when using software RAID level 0, 5, 6 or 10",
        ),
        ([*_RAID, "FORMATDRIVE2 1", *_ROOT], "ERROR: FORMATDRIVE2 _AND_ SWRAID are active"),
        ([*_TWO, "FORMATDRIVE2 yes", *_ROOT], "ERROR: Value for FORMATDRIVE2 is not correct"),
        (["DRIVE1 /dev/sda", "DRIVE2 /dev/sda", "SWRAID 1", *_ROOT], "Duplicate DRIVE definition. /dev/sda"),
        (_ONE, "ERROR: The config has no partitions"),
        ([*_ONE, "PART boot ext3 512M"], "ERROR: Mountpoint for partition 1 is not correct: 'boot'"),
        ([*_ONE, "PART / zfs all"], "ERROR: Filesystem for partition 1 is not correct"),
        ([*_ONE, "PART / none all"], "ERROR: No filesystem for partition 1, but mounted to /"),
        ([*_ONE, "PART / ext4 all", "PART /home ext4 all"], 'ERROR: Partition size "all" has to be on the last'),
        ([*_ONE, "PART / ext4 many"], "ERROR: The size of the partition PART / is not a valid number"),
        ([*_ONE, "PART / ext4 0"], "ERROR: The size of the partition PART / is not a valid number"),
        ([*_ONE, "PART /boot ext3 199M", "PART / ext4 all"], "ERROR: Your /boot partition has to be at least 200M"),
        ([*_ONE, "PART / ext4 1499M"], "ERROR: Your / partition has to be at least 1500M (current size: 1499)"),
        ([*_ONE, "PART /boot/efi esp 255M", *_ROOT], "ERROR: EFI System Partition (ESP) has to be at least 256M"),
        ([*_ONE, "PART /efi esp 256M", *_ROOT], "ERROR: EFI System Partition (ESP) must be mounted at /boot/efi"),
        ([*_ONE, "PART / ext4 6G", "PART /boot/efi esp all"], "ERROR: EFI System Partition MUST NOT be all"),
        ([*_ONE, "PART /home ext4 all"], "ERROR: You dont have a partition for /"),
        ([*_ONE, "PART / ext4 9G"], "ERROR: You are going to use more space than your drives have available."),
        ([*_ONE, "PART / ext4 7200M", "PART /home ext4 all"], "ERROR: You are going to use more space"),
        (
            [*_ONE, "PART lvm vg0 all", "LV vg0 root / ext4 4G"],
            "ERROR: /boot or / may not be a Logical Volume",
        ),
        ([*_ONE, *_ROOT[:1], "PART lvm vg0 all"], "ERROR: There are volume groups defined, but no logical volumes"),
        ([*_ONE, *_ROOT, "LV vg0 a /a ext4 1G"], "ERROR: There are logical volumes defined, but no volume groups"),
        (
            [*_ONE, *_ROOT[:1], "PART lvm vg0 all", "LV vg1 root / ext4 4G"],
            "ERROR: LVM volume group 'vg1' not defined",
        ),
        (
            [*_ONE, *_ROOT[:1], "PART lvm vg0 all", "LV vg0 root / ext4 all", "LV vg0 a /a ext4 1G"],
            "ERROR: LV size 'all' has to be on the last LV in VG vg0.",
        ),
        (
            [*_ONE, "PART swap swap 1G", "PART /a ext4 1G", "PART /b ext4 1G", "PART / ext4 all"],
            "ERROR: / must be mounted on a primary partition",
        ),
        (
            [*_ONE, "PART swap swap 1G", "PART /a ext4 1G", "PART / ext4 2G", "PART /boot ext3 all"],
            "ERROR: /boot must be mounted on a primary partition",
        ),
        ([*_ONE, "PART / ext4 4G", "PART / ext4 all"], "ERROR: There are identical mountpoints in the config (/)"),
        ([*_ONE, "PART btrfs.1 btrfs all"], "ERROR: There are btrfs volumes defined, but no subvolumes defined"),
        ([*_ONE, *_ROOT, "SUBVOL btrfs.1 @ /x"], "ERROR: There are btrfs subvolumes defined, but no volumes defined"),
        ([*_ONE, "PART btrfs.1 btrfs all", "SUBVOL btrfs.2 @ /"], "ERROR: No subvolumes defined for btrfs volume"),
        ([*_ONE, "PART / ext4 all crypt"], "ERROR: Value for CRYPTPASSWORD is not defined"),
        ([*_ONE, *_ROOT, "GOVERNOR fast"], "ERROR: No valid GOVERNOR"),
    ],
)
def test_one_reason(lines: list[str], words: str) -> None:
    assert words in _refused(*lines)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("IMAGE", "ERROR: No valid IMAGEPATH"),
        ("IMAGE /i/Debian-1200-bookworm-amd64-base.img", "is no valid FILETYPE for images"),
        ("IMAGE /i/debian.tar.zst", "ERROR: can not determine image arch from filename"),
        ("IMAGE /i/Debian-1200-amd64.tar.zst", "ERROR: can not determine image arch from filename"),
        (
            "IMAGE /i/Debian-1200-bookworm-arm64-base.tar.zst",
            "ERROR: can not install an arm64 image on a x86_64 system",
        ),
    ],
)
def test_image_names(image: str, words: str) -> None:
    assert words in _refused(*_ONE, *_ROOT, image=image)


@pytest.mark.parametrize("row", real_verdicts.ROWS, ids=[row.name for row in real_verdicts.ROWS])
def test_it_says_what_the_real_one_said(row: real_verdicts.Row) -> None:
    drives = {f"/dev/sd{letter}": Drive(real_verdicts.DRIVE_BYTES) for letter in "ab"}
    lines = (*row.lines, "DRIVE1 /dev/sda", "BOOTLOADER grub", "HOSTNAME node1", f"IMAGE /i/{row.image}")
    found = first_error(config.parse("\n".join(lines)), Machine("x86_64", row.uefi, drives))
    assert (row.real in found) if row.real and found else ((found or "") == row.real), found


#: Calls the check of Hetzner's own scripts; what it would ask the machine is answered here.
_REAL = """
SCRIPTPATH=$1; cd "$1"; FOLD=$2
for file in ./config.sh ./functions.sh ./*.functions.sh; do . "$file" >/dev/null 2>&1; done
test() { [ "$1" = -b ] || builtin test "$@"; }
sfdisk() { echo a table; }
blockdev() { echo %d; }
mkfs.xfs() { echo "mkfs.xfs version 6.1.0"; }
getdrives() { COUNT_DRIVES=2; }
graph_error() { printf '%%s\\n' "$1"; }
debugoutput() { cat >/dev/null; }
for name in hdparm debug graph_notice; do eval "$name() { :; }"; done
for name in is_usb_disk is_dell_r6415 is_cpanel_install is_plesk_install; do eval "$name() { return 1; }"; done
SYSARCH=x86_64 UEFI=$3
validate_vars "$2/config"
"""


@pytest.mark.long
@pytest.mark.skipif("KUBENODE_LAB_INSTALLIMAGE" not in os.environ, reason="it names no folder of Hetzner's scripts")
@pytest.mark.parametrize("row", real_verdicts.ROWS, ids=[row.name for row in real_verdicts.ROWS])
def test_the_real_one_still_says_so(row: real_verdicts.Row, tmp_path: Path) -> None:
    lines = (*row.lines, "DRIVE1 /dev/sda", "BOOTLOADER grub", "HOSTNAME node1", f"IMAGE /i/{row.image}")
    (tmp_path / "config").write_text("\n".join(lines) + "\n")
    folder = os.path.abspath(os.environ["KUBENODE_LAB_INSTALLIMAGE"])
    words = ["bash", "-c", _REAL % real_verdicts.DRIVE_BYTES, "bash", folder, str(tmp_path), str(int(row.uefi))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(row.real), done
    # a size such as 4g ends it with an error of the shell
    assert row.real in done.stdout or "value too great for base" in done.stderr


def test_uefi_needs_exactly_one_esp() -> None:
    assert _refused(*_ONE, *_ROOT, uefi=True) == "ERROR: ESP missing or multiple ESP found"


def test_a_drive_in_use() -> None:
    found = _refused(*_RAID, *_ROOT, busy="/dev/sdb")
    assert found == "ERROR: DRIVE2 is busy - cannot access device /dev/sdb"


def test_containers_get_neither_arrays_nor_volume_groups() -> None:
    raid = _refused(*_RAID, *_ROOT, stackable=False)
    lvm = _refused(*_ONE, *_ROOT[:1], "PART lvm vg0 all", "LV vg0 root / ext4 all", stackable=False)
    crypt = _refused(*_ONE, *_ROOT[:1], "PART / ext4 all crypt", "CRYPTPASSWORD x", stackable=False)
    assert "no encryption in a container" in crypt
    assert "no software RAID in a container" in raid
    assert "no LVM in a container" in lvm
