# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a new system can start, as the script that installimage runs in it finds out."""

from __future__ import annotations

import os
import subprocess

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import post_install
from tests.folders import put_files, put_programs
from tests.unit.installimage import parts
from tests.unit.installimage.specifications import specified

ENTRY = """\
function load_video { insmod all_video; }
menuentry 'Debian' {
\tlinux\t/boot/vmlinuz-6.1 root=UUID=aaaa-1 ro
\tinitrd\t/boot/initrd.img-6.1
}
menuentry 'old' { linux /boot/gone }
"""
#: A good system: its files, its mounts, the first sectors of its disks.
SYSTEM = {
    "boot/grub/grub.cfg": ENTRY,
    "boot/vmlinuz-6.1": "kernel",
    "boot/initrd.img-6.1": "initramfs",
    "boot/efi/EFI/BOOT/BOOTX64.EFI": "loader",
    "etc/fstab": """\
# / was on sda
UUID=aaaa-1 / ext4 defaults 0 0
UUID=bbbb-2 /boot ext3 defaults 0 0
""",
    "proc/mounts": """\
overlay / overlay rw 0 0
/dev/sda2 / ext4 rw 0 0
/dev/sda1 /boot ext3 rw 0 0
/dev/sda3 /boot/efi vfat rw 0 0
""",
    "dev/sda": "\0code GRUB \0Geom\0",
    "dev/sdb": "\0code GRUB \0Geom\0",
}
#: What the machine's own programs say of these devices.
DEVICES = {
    "blkid": "case $6 in /dev/sda2) echo aaaa-1 ;; /dev/sda1) echo bbbb-2 ;; esac",
    "findfs": "case $1 in LABEL=root) echo /dev/disk/root ;; *) exit 1 ;; esac",
    "stat": "case $3 in /dev/sda2|/dev/disk/root|/dev/vg0/root) echo 8:2 ;; /dev/sda1) echo 8:1 ;; *) exit 1 ;; esac",
    "uname": "echo x86_64",
}
CONFIG, BLS = "boot/grub/grub.cfg", {"boot/grub/grub.cfg": None, "boot/grub2/grub.cfg": "insmod blscfg\nblscfg\n"}
RESCUE_ENTRY = "linux /vmlinuz-0-rescue\ninitrd /initramfs-0-rescue.img\n"
GOOD_ENTRY = "title Rocky\nlinux /vmlinuz-6.1\ninitrd /initrd.img-6.1 $tuned_initrd\n"


def proven(top, changes, uefi):
    """What the proof says of a system that differs from the good one; a file without content is missing."""
    put_files(top, {path: content for path, content in {**SYSTEM, **changes}.items() if content is not None})
    programs = put_programs(top / "programs", DEVICES)
    part = post_install.proof([f"{top}/dev/sda", f"{top}/dev/sdb"], uefi)
    said = parts.said(top, part, f"{programs}:{os.environ['PATH']}")
    return said.removeprefix("failed 0 the new system would not start: ")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {CONFIG: ENTRY.replace("/boot/", "/")},
        {CONFIG: ENTRY.replace("/boot/", "/@root/boot/").replace("linux\t", "linuxefi ")},
        {**BLS, "boot/loader/entries/0.conf": RESCUE_ENTRY, "boot/loader/entries/a.conf": GOOD_ENTRY},
        {"etc/fstab": "LABEL=root / ext4 defaults 0 0\n/dev/sda1 /boot ext3 defaults 0 0\n"},
        {"etc/fstab": "/dev/vg0/root / ext4\n/dev/sda1 /boot ext3\n"},
        {"etc/fstab": "UUID=aaaa-1 / ext4\n", "proc/mounts": "/dev/sda2 / ext4 rw 0 0\n/dev/sda3 /boot/efi vfat rw\n"},
    ],
)
@pytest.mark.parametrize("uefi", [False, True])
def test_a_system_that_can_start_is_proven(tmp_path, changes, uefi):
    assert proven(tmp_path, changes, uefi) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({CONFIG: None}, "there is no /boot/grub/grub.cfg, or it is empty"),
        ({CONFIG: ""}, "there is no /boot/grub/grub.cfg, or it is empty"),
        ({CONFIG: "set timeout=5\n"}, "of what /boot/grub/grub.cfg starts (kernel none, initramfs none)"),
        ({"boot/vmlinuz-6.1": None}, "(kernel /boot/vmlinuz-6.1, initramfs /boot/initrd.img-6.1), something is not"),
        ({"boot/initrd.img-6.1": ""}, "(kernel /boot/vmlinuz-6.1, initramfs /boot/initrd.img-6.1), something is not"),
        ({CONFIG: ENTRY.replace("initrd", "#")}, "initramfs none"),
        ({**BLS, "boot/loader/entries/0.conf": RESCUE_ENTRY}, "of what /boot/grub2/grub.cfg starts"),
        (BLS, "of what /boot/grub2/grub.cfg starts"),
        ({"etc/fstab": None}, "/etc/fstab has no line for /\n"),
        ({"etc/fstab": "#UUID=aaaa-1 / ext4\n"}, "/etc/fstab has no line for /\n"),
        ({"etc/fstab": "UUID=aaaa-1 / ext4\n"}, "/etc/fstab has no line for /boot\n"),
        ({"etc/fstab": "UUID=cccc-3 / ext4\n"}, "/etc/fstab mounts UUID=cccc-3 at /, which is on /dev/sda2"),
        ({"etc/fstab": "/dev/sda1 / ext4\n"}, "/etc/fstab mounts /dev/sda1 at /, which is on /dev/sda2"),
        ({"etc/fstab": "/dev/gone / ext4\n"}, "/etc/fstab mounts /dev/gone at /, which is on /dev/sda2"),
    ],
)
@pytest.mark.parametrize("uefi", [False, True])
def test_a_system_that_cannot_start_fails_the_installation(tmp_path, changes, words, uefi):
    assert words in proven(tmp_path, changes, uefi)


CRYPTTAB = {"etc/crypttab": "luks-1 UUID=1 none luks\n"}
HOOK = {"usr/share/initramfs-tools/hooks/cryptroot": "x"}


@pytest.mark.parametrize(
    ("files", "programs", "words"),
    [
        ({}, {}, ""),
        (CRYPTTAB, {}, "/etc/crypttab names encrypted devices; the image lacks cryptsetup"),
        (CRYPTTAB, {"cryptsetup": "", "lsblk": "echo part; echo disk"}, ""),
        (
            CRYPTTAB,
            {"cryptsetup": "", "lsblk": "echo crypt; echo part"},
            "/ is encrypted, and no initramfs of this image",
        ),
        ({**CRYPTTAB, **HOOK}, {"cryptsetup": "", "lsblk": "echo lvm; echo crypt; echo part"}, ""),
        (
            {**CRYPTTAB, "usr/lib/dracut/modules.d/90crypt/module-setup.sh": "x"},
            {"cryptsetup": "", "lsblk": "echo crypt"},
            "",
        ),
    ],
)
def test_an_encrypted_system_can_open_its_own_disk(tmp_path, files, programs, words):
    put_files(tmp_path, files)
    own = put_programs(tmp_path / "programs", programs)
    (own / "grep").symlink_to("/usr/bin/grep")
    helpers = f"top='{tmp_path}'\n" + 'dead() { echo "$*"; exit 1; }\nmounted() { echo /dev/mapper/x; }\n'
    words_of = ["/bin/sh", "-c", helpers + post_install._CRYPT]
    done = subprocess.run(words_of, env={"PATH": str(own)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (int(bool(words)), "")
    assert done.stdout.startswith(words)


def scripted(**fields) -> str:
    """The whole script for two disks in legacy mode."""
    spec = specified(hostname="node-1", **fields)
    return post_install.script(spec, "5f0c9d", "iid-1", {"machine": "node-1"}, ["/dev/sda", "/dev/sdb"], False)


def test_only_an_encrypted_system_is_asked_that():
    assert "crypttab" in scripted(crypt_password="correct-horse")
    assert "crypttab" not in scripted()


@pytest.mark.parametrize(
    ("changes", "uefi", "words"),
    [
        ({"dev/sdb": "\0" * 440}, False, "there is no boot loader at the beginning of /dev/sdb; debug.txt has what"),
        ({"dev/sda": None}, False, "there is no boot loader at the beginning of /dev/sda"),
        ({"boot/efi/EFI/BOOT/BOOTX64.EFI": None}, False, ""),
        ({"boot/efi/EFI/BOOT/BOOTX64.EFI": ""}, True, "there is no EFI/BOOT/BOOTX64.EFI in the EFI system partition"),
        ({"dev/sda": None, "dev/sdb": None}, True, ""),
        ({"proc/mounts": "/dev/sda2 / ext4 rw 0 0\n"}, True, "warning the EFI system partition is not mounted"),
    ],
)
def test_the_boot_loader_is_where_the_firmware_looks(tmp_path, changes, uefi, words):
    said = proven(tmp_path, changes, uefi)
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_only_the_first_disk_has_a_boot_loader_without_an_array():
    assert "for disk in /dev/sda /dev/sdb; do" in scripted(swraid=1)
    assert "for disk in /dev/sda; do" in scripted()
