# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Whether a file is what it is said to be, by its first bytes; an ISO by the area that is overlaid."""

from __future__ import annotations

from . import iso
from .base_file import glance
from .image_error import ImageError, failing
from .overlay import whole

ISO, INITRAMFS, KERNEL, ROOTFS = "iso", "initramfs", "kernel", "rootfs"
#: gzip, xz, zstd, bzip2, lz4 (two), lzma, lzo
_PACKED = (
    b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh",
    b"\x02\x21\x4c\x18", b"\x04\x22\x4d\x18", b"]\0\0", b"\x89LZO",
)  # fmt: skip
_ARCHIVES = tuple((0, mark) for mark in (b"070701", b"070702", *_PACKED))
#: where a file of each kind has which bytes
_MARKS = {
    INITRAMFS: _ARCHIVES,
    ROOTFS: (*_ARCHIVES, (0, b"hsqs")),
    # of x86, of Arm, with EFI, packed, of ppc64le, of s390x
    KERNEL: ((0x202, b"HdrS"), (56, b"ARM\x64"), (0, b"MZ"), (0, b"\x1f\x8b"), (0, b"\x7fELF"), (0x10008, b"S390EP")),
}
_NAMES = {
    INITRAMFS: "initramfs (an archive of cpio, plain or packed)",
    ROOTFS: "live root file system (an archive of cpio, or a squashfs)",
    KERNEL: "kernel",
}
_ISO_AT, _ISO = 0x8001, b"CD001"
_MOST = 0x10010  # bytes that are looked at


def check(path: str, kind: str) -> None:
    """ImageError unless the file at ``path`` is of this kind; one that is large is not read as a whole."""
    if kind == ISO:
        iso.of(whole(glance(path)))
        return
    glance(path)
    with failing(f"base {path} cannot be read"), open(path, "rb") as file:
        head = file.read(_MOST)
    if head[_ISO_AT:].startswith(_ISO):
        raise ImageError(f"base {path} is an ISO, and no {_NAMES[kind]}")
    if not any(head[at:].startswith(mark) for at, mark in _MARKS[kind]):
        raise ImageError(f"base {path} is no {_NAMES[kind]}: it begins with {head[:6].hex()}")
