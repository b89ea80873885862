# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration as text, and what must never get into it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import config_words
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.config_words import (
    SUFFIXES,
    InvalidImageName,
    check_architecture,
    parse_image_name,
)
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage.spec import EXTRA, autosetup
from tests.unit.installimage.specifications import specified
from tests.unit.installimage.test_layout import part

NAME = "Debian-1200-bookworm-amd64-base.tar.zst"
IMAGE = {"kind": "name", "location": f"{specs.IMAGES}/{NAME}", "file_name": NAME, "digest": "", "shown": NAME}
SHA = "sha256:" + "0" * 64

MIRROR = """\
DRIVE1 /dev/nvme0n1
DRIVE2 /dev/nvme1n1
SWRAID 1
SWRAIDLEVEL 1
BOOTLOADER grub
HOSTNAME node1
IPV4_ONLY yes
PART /boot/efi esp 256M
PART /boot ext4 1G
PART lvm vg0 all
LV vg0 root / ext4 40G
LV vg0 swap swap swap 8G
IMAGE /root/.oldroot/nfs/images/Debian-1200-bookworm-amd64-base.tar.zst
"""
CRYPT = """\
DRIVE1 /dev/sda
SWRAID 0
BOOTLOADER grub
HOSTNAME node1
CRYPTPASSWORD correct-horse
PART /boot ext4 1G
PART / ext4 all crypt
IMAGE /x.tar
"""
BTRFS = """\
DRIVE1 /dev/sda
SWRAID 0
BOOTLOADER grub
HOSTNAME node1
PART /boot ext4 1G
PART btrfs.1 btrfs all
SUBVOL btrfs.1 @ /
IMAGE /x.tar
"""


def made(**fields) -> dict:
    return specified(
        **{"machine": "node1", "hostname": "node1", "image": dict(IMAGE), "devices": ["wwn-0x1"], **fields}
    )


def text_of(spec: dict, drives: list[str], image: str, uefi: bool = False, mask: bool = False) -> str:
    assert specs.findings(spec) == []
    return autosetup(spec, specs.layout_of(spec, uefi), drives, image, mask)


def test_a_mirror_with_lvm_and_an_esp():
    spec = made(
        devices=["wwn-0x1", "wwn-0x2"], swraid=1, autosetup={"IPV4_ONLY": True},
        partitions=[part("/boot/efi", "esp", "256M"), part("/boot", "ext4", "1G"), part("lvm", "vg0", "all")],
        logical_volumes=[
            {"vg": "vg0", "name": "root", "mount": "/", "filesystem": "ext4", "size": "40G"},
            {"vg": "vg0", "name": "swap", "mount": "swap", "filesystem": "swap", "size": "8G"},
        ],
    )  # fmt: skip
    assert text_of(spec, ["/dev/nvme0n1", "/dev/nvme1n1"], IMAGE["location"]) == MIRROR


def test_a_truth_value_of_yaml_is_a_number_for_installimage():
    """``type: int`` takes ``true`` through as it is; installimage refuses it, after the disks were emptied."""
    spec = made(devices=["wwn-0x1", "wwn-0x2"], swraid=True, swraid_level=True)
    text = text_of(spec, ["/dev/sda", "/dev/sdb"], IMAGE["location"])
    assert "SWRAID 1\nSWRAIDLEVEL 1\n" in text


def test_an_encrypted_root_and_the_masked_preview():
    spec = made(
        crypt_password="correct-horse", partitions=[part("/boot", "ext4", "1G"), part("/", "ext4", "all", True)]
    )
    assert text_of(spec, ["/dev/sda"], "/x.tar") == CRYPT
    assert text_of(spec, ["/dev/sda"], "/x.tar", mask=True) == CRYPT.replace("correct-horse", "********")


def test_btrfs_subvolumes():
    spec = made(
        partitions=[part("/boot", "ext4", "1G"), part("btrfs.1", "btrfs", "all")],
        subvolumes=[{"volume": "btrfs.1", "subvolume": "@", "mount": "/"}],
    )
    assert text_of(spec, ["/dev/sda"], "/x.tar") == BTRFS


@pytest.mark.parametrize(("uefi", "esp"), [(True, ["PART /boot/efi esp 256M"]), (False, [])])
def test_the_default_layout(uefi, esp):
    lines = text_of(made(), ["/dev/sda"], "/x.tar", uefi).splitlines()
    assert [line for line in lines if line.startswith("PART")] == [*esp, "PART /boot ext4 1G", "PART / ext4 all"]


@pytest.mark.parametrize(
    ("extra", "fix"),
    [
        ({"DRIVE1": "/dev/sdb"}, "root_devices"), ({"DRIVE": "x"}, "root_devices"), ({"PART": "x"}, "partitions"),
        ({"IMAGE": "x"}, "image"), ({"FORMATDRIVE2": "1"}, "kubenode_wipe"), ({"PRESERVE_VG": "1"}, "leave it out"),
        ({"FORCE_PASSWORD": "x"}, "SSH keys"), ({"GOVERNER": "x"}, "GOVERNOR"), ({"governor": "x"}, "capitals"),
        ({"GOVERNOR": "a b"}, "spaces"), ({"GOVERNOR": "x\nPART / ext4 all"}, "line breaks"),
        ({"GOVERNOR": ""}, "empty"),
        ({"GOVERNOR": "'x'"}, "quotes"), ({"GOVERNOR": "$(reboot)"}, "letters"), ({"GOVERNOR": ["x"]}, "one word"),
        ({"SSHKEYS_URL": "https://x/PASSWD"}, "PASSWD"),
        # read by how a line begins, and before the lines that follow from the options
        ({"IMAGE_TYPE": "x"}, "would read it as IMAGE"), ({"HOSTNAMES": "x"}, "would read it as HOSTNAME"),
        ({"PRESERVE_VGS": "x"}, "would read it as PRESERVE_VG"), ({"PARTITIONS": "x"}, "would read it as PART"),
        ({"SOMETHING_NEW": True}, "in quotes"),
    ],
)  # fmt: skip
def test_extra_keys_that_are_refused(extra, fix):
    findings = specs.findings(made(autosetup=extra))
    assert len(findings) == 1
    assert fix in findings[0]
    assert "autosetup" in findings[0]


def test_extra_keys_that_are_taken():
    extra = {"SSHKEYS_URL": "https://x/keys", "FORCE_GPT": 1, "GOVERNOR": "performance", "SOMETHING_NEW": "yes"}
    lines = text_of(made(autosetup=extra), ["/dev/sda"], "/x.tar").splitlines()
    assert {"SSHKEYS_URL https://x/keys", "FORCE_GPT 1", "GOVERNOR performance", "SOMETHING_NEW yes"} <= set(lines)


#: key → what a user may give → the word that is written; None: no line, as installimage takes any word for yes
TAKEN = {
    "BOOTLOADER": {"grub": "grub", "GRUB": "grub", "Grub": "grub"},
    "IPV4_ONLY": {True: "yes", False: "no", "yes": "yes", "No": "no", "true": "yes"},
    "USE_KERNEL_MODE_SETTING": {True: "yes", False: "no", "YES": "yes"},
    "TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS": {True: "yes", False: "no"},
    "GOVERNOR": {"powersave": "powersave", "Performance": "performance", "ondemand": "ondemand"},
    "FORCE_GPT": {True: "1", "1": "1", 2: "2", "2": "2", "true": "1", False: None, "0": None},
    "FORCE_SIGN": {True: "1", "yes": "1", False: None, "no": None, "False": None},
    "RAID_ASSUME_CLEAN": {True: "1", "1": "1", False: None, "0": None},
    "ALLOW_USB_DRIVES": {True: "1", False: None},
    "RAID_LAYOUT": {"f2": "f2", "left-symmetric": "left-symmetric", "rs": "rs"},
    "SSHKEYS_URL": {"http://x/keys": "http://x/keys", "/root/.ssh/robot_user_keys": "/root/.ssh/robot_user_keys"},
}


def test_the_table_of_extra_keys_is_tested_whole():
    assert set(TAKEN) == set(EXTRA)


@pytest.mark.parametrize(
    ("key", "value", "word"), [(key, *pair) for key, values in TAKEN.items() for pair in values.items()]
)
def test_each_key_is_written_as_installimage_reads_it(key, value, word):
    lines = text_of(made(autosetup={key: value}), ["/dev/sda"], "/x.tar").splitlines()
    assert [line for line in lines if line.startswith(key)] == ([] if word is None else [f"{key} {word}"])


@pytest.mark.parametrize(
    ("key", "value", "takes"),
    [
        ("BOOTLOADER", "systemd-boot", "takes grub"), ("BOOTLOADER", True, "takes grub"),
        ("GOVERNOR", "schedutil", "powersave, performance or ondemand"), ("GOVERNOR", 1, "powersave"),
        ("FORCE_GPT", 3, "1 (or true), 2"), ("FORCE_SIGN", "perhaps", "true or false"),
        ("RAID_ASSUME_CLEAN", 2, "true or false"), ("ALLOW_USB_DRIVES", "x", "true or false"),
        ("IPV4_ONLY", 1, "yes or no"), ("RAID_LAYOUT", "2", "layout of mdadm"), ("SSHKEYS_URL", "keys", "URL"),
        ("SSHKEYS_URL", "file:///x", "URL"),
    ],
)  # fmt: skip
def test_a_word_that_installimage_does_not_know_is_refused_with_those_it_knows(key, value, takes):
    (finding,) = specs.findings(made(autosetup={key: value}))
    assert finding.startswith(f"autosetup.{key} ")
    assert takes in finding


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"hostname": "node_1"}, "hostname"), ({"hostname": "-a"}, "hostname"), ({"hostname": "a\nb"}, "hostname"),
        ({"hostname": "a b"}, "hostname"), ({"hostname": "x" * 64}, "hostname"), ({"hostname": ""}, "hostname"),
        ({"crypt_password": "correct-horse"}, "crypt: true"),
        ({"partitions": [part("/boot", "ext4", "1G"), part("/", "ext4", "all", True)]}, "crypt_password"),
        ({"command": "installimage"}, "absolute path"), ({"command": "/x y"}, "absolute path"),
        ({"post_install_script": "a\0"}, "null byte"), ({"devices": ["a", "b"]}, "swraid: 1"),
        ({"devices": ["a"], "swraid": 1}, "2 disks"),
        ({"logical_volumes": [{"vg": "vg0", "name": "a", "mount": "/", "filesystem": "ext4", "size": "1G"}]}, "empty"),
        ({"image": dict(IMAGE, location="/x/../y")}, "plain path"), ({"image": dict(IMAGE, digest="md5:1")}, "sha256:"),
        ({"image": dict(IMAGE, file_name="Debian.tar")}, "architecture"), ({"uefi": "true", "partitions": [
            part("/", "ext4", "all")]}, "there is no ESP"),
    ],
)  # fmt: skip
def test_what_is_refused(fields, fix):
    assert [text for text in specs.findings(made(**fields)) if fix in text], specs.findings(made(**fields))


@pytest.mark.parametrize(
    "password",
    [
        "short",
        "with space in it",
        "quote'quote",
        'quote"quote',
        "back\\slash",
        "lin\nes123",
        "umläut-umläut",
        "PASSWD-PASSWD",
    ],
)
def test_passphrases_that_are_refused_are_not_shown(password):
    spec = made(crypt_password=password, partitions=[part("/boot", "ext4", "1G"), part("/", "ext4", "all", True)])
    (finding,) = specs.findings(spec)
    assert finding.startswith("crypt_password")
    assert password not in finding


def test_a_specification_survives_the_way():
    spec = made(bootstrap_data="#cloud-config\nü\n", post_install_script="echo '\"$x\\'\n")
    assert specs.unpack(specs.pack(spec)) == spec


@given(st.text(max_size=40))
def test_a_word_is_one_word_on_one_line(text):
    if config_words.check_word("x", text) == []:
        assert text.split() == [text]
        assert not set(text) & set("'\"\\`$;&|<>()\n\r\t ")


@given(st.text(min_size=1, max_size=40))
def test_a_passphrase_is_one_word(text):
    if config_words.check_passphrase("x", text) == []:
        assert text.split() == [text]
        assert not set(text) & set("'\"\\`")


# --- file names of images


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (NAME, ("debian", 1200, "amd64", "x86_64")),
        ("Ubuntu-2404-noble-amd64-base.tar.gz", ("ubuntu", 2404, "amd64", "x86_64")),
        ("Archlinux-latest-64-minimal.tar.xz", ("arch", 0, "64", "x86_64")),
        ("Rocky-90-amd64-base.tgz", ("rocky", 90, "amd64", "x86_64")),
        ("Debian-1200-bookworm-arm64-base.tar.zst", ("debian", 1200, "arm64", "aarch64")),
        ("Mine-7-i386-x.tar", ("debian", 7, "i386", "i686")),
        ("Debian-bookworm-latest-amd64-base.tbz2", ("debian", 0, "amd64", "x86_64")),
        ("Ubuntu-24.04-64-amd64-base.tar", ("ubuntu", None, "amd64", "x86_64")),
    ],
)
def test_names_are_read_as_installimage_reads_them(name, parsed):
    assert tuple(parse_image_name(name)) == parsed


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Debian-1200-bookworm-base.tar.zst", "architecture"), ("Debian-1200-bookworm-amd64.tar.zst", "architecture"),
        ("Debian-1200-amd64-base.raw.zst", "unpacks only"),
        ("Debian-1200-amd64-base", "unpacks only"), (".tar", "letters"), ("", "letters"),
        ("Debian-1200-amd64-ba se.tar", "letters"), ("-rf-amd64-x.tar", "letters"),
        ("a/Debian-1-amd64-x.tar", "letters"),
    ],
)  # fmt: skip
def test_names_that_are_refused(name, fix):
    with pytest.raises(InvalidImageName, match=fix):
        parse_image_name(name)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_of_archive(suffix):
    assert parse_image_name("Debian-1200-bookworm-amd64-base" + suffix).version == 1200


def test_the_architecture_must_be_the_machine_s():
    check_architecture(NAME, "x86_64")
    check_architecture("Mine-7-i386-x.tar", "x86_64")
    with pytest.raises(InvalidImageName, match=r"x86_64 \(amd64 in its name\), and the machine is aarch64"):
        check_architecture(NAME, "aarch64")


@given(st.text(max_size=60))
def test_a_name_that_is_taken_is_harmless_in_a_path(name):
    try:
        parse_image_name(name)
    except InvalidImageName:
        return
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert config_words.check_word("x", name) == [] or config_words.PROMPT in name
