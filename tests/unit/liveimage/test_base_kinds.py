# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file is looked at before it becomes a base: is it what it is said to be?"""

from __future__ import annotations

import gzip

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import base_kinds, cpio
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from tests.unit.liveimage.maker import Layout, make

ARCHIVE = cpio.archive({"init": b"x"})
X86 = bytes(0x202) + b"HdrS" + bytes(100)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("initramfs", ARCHIVE),
        ("initramfs", gzip.decompress(ARCHIVE)),
        ("initramfs", b"\x28\xb5\x2f\xfd of zstd"),
        ("rootfs", gzip.decompress(ARCHIVE)),
        ("rootfs", b"hsqs of a squashfs"),
        ("kernel", X86),
        ("kernel", b"MZ of EFI"),
        ("kernel", bytes(0x10008) + b"S390EP"),
    ],
)
def test_what_is_of_its_kind(tmp_path, kind, content):
    (tmp_path / "base").write_bytes(content)
    base_kinds.check(str(tmp_path / "base"), kind)


@pytest.mark.parametrize("kind", ["iso", "initramfs", "kernel", "rootfs"])
@pytest.mark.parametrize("content", [b"junk\n", b"", b"<html>" * 999, b"#" * 0x10100])
def test_what_is_none(tmp_path, kind, content):
    (tmp_path / "base").write_bytes(content)
    with pytest.raises(ImageError, match=str(tmp_path / "base")):
        base_kinds.check(str(tmp_path / "base"), kind)


def test_an_iso_is_nothing_else(tmp_path):
    path = str(make(tmp_path / "live.iso", Layout()))
    base_kinds.check(path, "iso")
    for kind in ("initramfs", "kernel", "rootfs"):
        with pytest.raises(ImageError, match="is an ISO, and no "):
            base_kinds.check(path, kind)
