# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autosetup file and the image name, as installimage reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.installimage.emulator import config
from lab.installimage.emulator.config import LogicalVolume, Part, Subvolume
from lab.installimage.emulator.image import parse_image_name

_FULL = """# a comment
DRIVE1 /dev/nvme0n1
DRIVE2 /dev/nvme1n1
SWRAID 1
SWRAIDLEVEL 1
BOOTLOADER GRUB
HOSTNAME node1
PART /boot/efi esp 256M
PART /boot ext4 1G
PART lvm vg0 all crypt
LV vg0 root / ext4 40G
LV vg0 swap swap swap all
PART btrfs.1 btrfs 2T
SUBVOL btrfs.1 @ /srv
IMAGE http://user:secret@example.org/x/Debian-1200-bookworm-amd64-base.tar.zst
CRYPTPASSWORD two words
TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS No
IPV4_ONLY no
IPV4_ONLY yes
HOSTNAME second
unknown words
"""


def test_every_key_is_read_and_the_first_of_two_counts() -> None:
    found = config.parse(_FULL)
    assert found.drives == ["/dev/nvme0n1", "/dev/nvme1n1"]
    assert (found.raid, found.level, found.bootloader, found.hostname) == (True, "1", "grub", "node1")
    assert found.parts == [
        Part("/boot/efi", "esp", 256),
        Part("/boot", "ext4", 1024),
        Part("lvm", "vg0", "all", crypt=True),
        Part("btrfs.1", "btrfs", 2 << 20),
    ]
    assert found.logical_volumes == [
        LogicalVolume("vg0", "root", "/", "ext4", 40960),
        LogicalVolume("vg0", "swap", "swap", "swap", "all"),
    ]
    assert found.subvolumes == [Subvolume("btrfs.1", "@", "/srv")]
    assert (found.crypt_password, found.take_over_keys, found.ipv4_only) == ("two words", False, True)
    assert found.lvm


def test_nothing_said_means_one_drive_and_the_rescues_keys() -> None:
    found = config.parse("DRIVE1 /dev/sda\nDRIVE2 /dev/sdb\nFORMATDRIVE2 1\n")
    assert (found.raid, found.bootloader, found.take_over_keys, found.lvm) == (False, "grub", True, False)
    assert found.used_drives == ["/dev/sda"]
    assert found.erased_drives == ["/dev/sda", "/dev/sdb"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("512M", 512),
        ("512MiB", 512),
        ("1TiB", 1 << 20),
        ("all", "all"),
        ("ALL", "ALL"),
        ("4g", "4g"),
        ("4GB", "4GB"),
        ("12X", "12X"),
        ("-1", "-1"),
    ],
)
def test_sizes_are_mebibytes(text: str, size: int | str) -> None:
    assert config.size(text) == size


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    config.parse(text)


@pytest.mark.parametrize(
    ("value", "way", "packing", "distribution", "version", "architecture"),
    [
        ("/i/Ubuntu-2404-noble-amd64-base.tar.zst", "local", "zst", "ubuntu", "2404", "amd64"),
        ("https://u:p@h/Debian-1200-bookworm-amd64-x.tgz", "http", "tgz", "debian", "1200", "amd64"),
        ("nas:/i/Rocky-latest-64-minimal.tar.xz", "nfs", "txz", "rockylinux", "0", "64"),
        ("/i/own-amd64.tar", "local", "tar", "debian", "amd64.tar", ""),
        ("/i/disk.img", "local", "", "debian", "0", ""),
        ("http://h/Debian-1200-amd64-base.tar.gz?key=a/b", "http", "", "debian", "0", ""),
    ],
)
def test_image_name(value: str, way: str, packing: str, distribution: str, version: str, architecture: str) -> None:
    image = parse_image_name(value)
    assert (image.way, image.packing, image.distribution, image.architecture) == (
        way,
        packing,
        distribution,
        architecture,
    )
    assert version in (image.version, "0")
    assert image.url == value


def test_architecture_must_fit_the_machine() -> None:
    amd64 = parse_image_name("/i/Debian-1200-bookworm-amd64-base.tar.zst")
    assert amd64.fits("x86_64")
    assert not amd64.fits("aarch64")
