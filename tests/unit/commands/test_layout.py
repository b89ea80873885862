# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layouts: what they become, and what is refused."""

from __future__ import annotations

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.basics import MIB, Refused
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.filesystems import Layout
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.imagecommand.rootfs_tar import fstab_fields


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def test_the_usual_layout():
    layout = Layout()
    assert [(one.purpose, one.fs, one.mib) for one in layout.volumes] == [
        ("bios", "", 1), ("esp", "vfat", 512), ("/", "ext4", 0),
    ]  # fmt: skip
    assert layout.sizes(10240 * MIB) == [MIB, 512 * MIB, 9725 * MIB]


def test_there_is_no_bios_on_arm(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert [one.purpose for one in Layout().volumes] == ["esp", "/"]


def test_outer_folders_are_mounted_first():
    layout = Layout("/var/lib/containerd:xfs:10G,/var:ext4:5G,esp:128M,swap:1G,/:btrfs:20G")
    assert layout.mounts() == ["/", "/var", "/var/lib/containerd"]
    assert [(one.purpose, one.mib) for one in layout.volumes][:2] == [("bios", 1), ("esp", 128)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/", "is none of MOUNT"), ("/:", "is none of ext4"), ("/:ext4:", "no size"), ("/:ext4:10", "no size"),
        ("/:ext4:0G", "no size"), ("swap", "is none of MOUNT"), ("swap:rest,/:ext4", "no size"),
        ("/:ext4,/:ext4", "twice"), ("/a/../b:ext4:1G,/:ext4", "no mount point"), ("/A b:ext4:1G,/:ext4", "no mount"),
        ("/dev/x:ext4:1G,/:ext4", "cannot be"), ("/boot/efi:ext4:1G,/:ext4", "cannot be"), ("/:xfs:100M", "at least"),
        ("esp:1M,/:ext4", "at least"), (",".join(f"/m{n}:ext4:1G" for n in range(12)) + ",/:ext4", "12 are the most"),
    ],
)  # fmt: skip
def test_what_makes_no_sense(text, why):
    with pytest.raises(Refused, match=why):
        Layout(text)


@given(st.text(alphabet="/:,aextfs4123MGT.", max_size=30))
def test_any_text_becomes_a_layout_or_a_reason(text):
    try:
        layout = Layout(text)
    except Refused as error:
        assert "layout=" in str(error)
        return
    assert "/" in layout.mounts()


def test_a_disk_that_is_too_small():
    with pytest.raises(Refused, match="it needs 531 MiB, the disk has 400 MiB"):
        Layout().sizes(400 * MIB)


@pytest.mark.parametrize(
    ("purpose", "fs", "line"),
    [
        ("/", "ext4", "/ ext4 errors=remount-ro 0 1"), ("/var", "ext4", "/var ext4 defaults 0 2"),
        ("/", "xfs", "/ xfs defaults 0 0"), ("swap", "swap", "none swap sw 0 0"),
        ("esp", "vfat", "/boot/efi vfat umask=0077,nofail 0 1"),
    ],
)  # fmt: skip
def test_fstab(purpose, fs, line):
    assert fstab_fields(purpose, fs) == line
