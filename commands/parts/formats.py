# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compression formats, told by their first bytes."""

from __future__ import annotations

MAGIC = {
    "gz": (b"\x1f\x8b",),
    "bz2": (b"BZh",),
    "xz": (b"\xfd7zXZ\x00",),
    "zst": (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))),
}


def compression(head: bytes) -> str:
    """Name the compression of a stream by its first bytes: gz, bz2, xz, zst or none."""
    return next((name for name, magics in MAGIC.items() if head.startswith(magics)), "none")


def zstd_size(head: bytes) -> int | None:
    """Read the content size from a zstd frame header (RFC 8878, 3.1.1.1), when it holds one."""
    if len(head) < 18 or not head.startswith(MAGIC["zst"][0]):
        return None
    flags = head[4]
    single, width = bool(flags & 0x20), (0, 2, 4, 8)[flags >> 6]
    width = width or int(single)
    start = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(head[start : start + width], "little") + (256 if width == 2 else 0)
    return size if width else None
