# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the image onto the disk and proves it."""

from __future__ import annotations

import time

from commands.parts.disk import Disk
from commands.parts.errors import Refused
from commands.parts.incoming import Incoming
from commands.parts.progress import Progress
from commands.parts.writer import Writer

FOREIGN = (
    (0, b"QFI\xfb", "a qcow2 image; convert it with qemu-img convert -O raw"),
    (0, b"KDMV", "a VMDK image; convert it with qemu-img convert -O raw"),
    (0, b"vhdxfile", "a VHDX image; convert it with qemu-img convert -O raw"),
    (0, b"PK\x03\x04", "a zip archive; unpack it"),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4; use zst, xz, gz or bz2"),
    (0, b"<", "a text, perhaps an error page; check the URL"),
    (257, b"ustar", "a tar archive; image-url-command-rootfs-tar installs those"),
)


def check_head(head: bytes, sector: int) -> None:
    """Refuse what is not the beginning of a raw disk that this disk can boot."""
    for place, magic, what in FOREIGN:
        if head[place : place + len(magic)] == magic:
            raise Refused("image: it is not a raw disk image but %s" % what)
    if head[510:512] != b"\x55\xaa":
        raise Refused("image: it is not a raw image of a whole disk (no 55 AA at byte 510)")
    other = {512: 4096, 4096: 512}.get(sector, 512)
    if head[other : other + 8] == b"EFI PART":
        raise Refused("image: its partition table is made for %d-byte sectors, the disk has %d" % (other, sector))


def write_image(incoming: Incoming, disk: Disk, progress: Progress) -> tuple[bytes, int, bytes]:
    """Bring the image onto the disk and prove it; return the ends of the disk, see Writer.finish()."""
    if incoming.size is not None and incoming.size > disk.size:
        raise Refused("image: it has %d bytes, %s only %d" % (incoming.size, disk.path, disk.size))
    check_head(incoming.head, disk.sector)
    what = (incoming.shown, incoming.kind, disk.path, disk.size // 10**6)
    progress.say("image: %s, compression %s, onto %s (%d MB)" % what)
    began = time.monotonic()

    def state() -> str:
        rate = writer.position / 1e6 / (time.monotonic() - began)
        return "writing %s: %d MB%s, %d MB/s" % (disk.path, writer.position // 10**6, incoming.share(), rate)

    with disk.exclusive() as fd:
        writer = Writer(fd, disk.size)
        disk.touched = True
        writer.prepare()
        disk.believe({})  # or the kernel would go on answering from what it read of the old partitions
        for block in incoming.blocks():
            writer.write(block)
            progress.tick(state, incoming.count)
        incoming.check()
        digest = incoming.digest
        progress.say("%s: %s %s; flushing" % (disk.path, digest.algorithm, digest.hash.hexdigest()))
        ends = writer.finish()
    progress.say("%s, %d MB of data, %.1f s" % (state(), writer.written // 10**6, time.monotonic() - began))
    return ends
