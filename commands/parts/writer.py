# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes an image to a device, all but what would make it boot."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct

from commands.parts.errors import Refused
from commands.parts.libc import LIBC
from commands.parts.sizes import BLOCK, MIB

GRAIN = 256 * 1024  # a zero run is found in steps of this
ZEROS = bytes(GRAIN)
EDGE = MIB  # the two ends of a disk that make it bootable; on the disk only when the image is proven


class Writer:
    """Writes an image to an open device, all but what would make it boot.

    The first and the last MiB of the device are zeroed before anything else, and what belongs there is kept back. Runs
    of zeros are not written but zeroed by the device, so what was on it before never shines through.
    """

    BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F
    PUNCH = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    START = 0x02  # SYNC_FILE_RANGE_WRITE

    def __init__(self, fd: int, size: int):
        self.fd, self.size = fd, size
        self.position = self.written = self.zeros = 0
        self.tail = max((size - EDGE) // GRAIN * GRAIN, 0)
        self.held: list = []
        self.ways = [self._punch, self._zeroout, self._overwrite]

    def prepare(self) -> None:
        """Discard what is on the device and make it unbootable."""
        with contextlib.suppress(OSError):  # good for SSDs and snapshots; nothing here relies on it
            fcntl.ioctl(self.fd, self.BLKDISCARD, struct.pack("QQ", 0, self.size))
        self.spoil()

    def spoil(self) -> None:
        """Zero both ends of the device: no boot code, no partition table, no signature is left."""
        self.zero(0, min(EDGE, self.size))
        self.zero(self.tail, self.size - self.tail)
        os.fsync(self.fd)

    def write(self, block: bytes) -> None:
        """Take the next block of the image."""
        if self.position + len(block) > self.size:
            raise Refused("image: it is larger than the device of %d bytes" % self.size)
        view = memoryview(block)
        data = None  # where in the block a run of data began
        for start in range(0, len(block), GRAIN):
            place = self.position + start
            piece = block[start : start + GRAIN]
            empty = piece == ZEROS[: len(piece)]
            edge = place < EDGE or place + len(piece) > self.tail
            if (empty or edge) and data is not None:
                self.put(view[data:start], self.position + data)
                data = None
            if edge:
                self._settle(place)
                if not empty:
                    self.held.append((place, piece))
            elif empty:
                self.zeros += len(piece)
            elif data is None:
                data = start
                self._settle(place)
        if data is not None:
            self.put(view[data:], self.position + data)
        self.position += len(block)

    def finish(self) -> tuple[bytes, int, bytes]:
        """Bring the image onto the device; return what was kept back: first MiB, place of the tail, tail."""
        self._settle(self.position)
        os.fsync(self.fd)
        ends = {0: bytearray(EDGE), self.tail: bytearray(self.size - self.tail)}
        for place, piece in self.held:
            start = self.tail if place >= self.tail else 0
            ends[start][place - start : place - start + len(piece)] = piece
        return bytes(ends[0]), self.tail, bytes(ends[self.tail])

    def put(self, view: memoryview, place: int) -> None:
        """Write bytes to a place."""
        begin, length = place, len(view)
        while view:
            done = os.pwrite(self.fd, view, place)
            view, place = view[done:], place + done
            self.written += done
        LIBC.sync_file_range(self.fd, ctypes.c_int64(begin), ctypes.c_int64(length), self.START)  # no long flush later

    def _settle(self, place: int) -> None:
        if self.zeros:
            self.zero(place - self.zeros, self.zeros)
            self.zeros = 0

    def zero(self, start: int, length: int) -> None:
        """Make a range read as zeros, by the cheapest way the device really has."""
        for begin in range(start, start + length, 256 * MIB):
            count = min(256 * MIB, start + length - begin)
            while True:
                try:
                    (self._overwrite if count % 4096 else self.ways[0])(begin, count)
                    break
                except OSError as error:
                    if len(self.ways) == 1 or error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
                        raise
                    del self.ways[0]

    def _punch(self, start: int, length: int) -> None:
        if LIBC.fallocate(self.fd, self.PUNCH, ctypes.c_int64(start), ctypes.c_int64(length)):
            raise OSError(ctypes.get_errno(), "fallocate")

    def _zeroout(self, start: int, length: int) -> None:
        fcntl.ioctl(self.fd, self.BLKZEROOUT, struct.pack("QQ", start, length))

    def _overwrite(self, start: int, length: int) -> None:
        empty = memoryview(bytes(min(length, BLOCK)))
        for begin in range(0, length, BLOCK):
            self.put(empty[: length - begin], start + begin)
