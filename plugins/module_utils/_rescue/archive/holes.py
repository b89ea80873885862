# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Where a file holds anything but zeros, so that a file of holes takes no more room than it has content."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator

#: Runs of zeros count when they fill a piece of this size, at a multiple of it.
PIECE = 64 * 1024
_ZEROS = bytes(PIECE)


def segments(fd: int, size: int) -> list[tuple[int, int]]:
    """The parts of an open file with content, as a list of (offset, length); the same for the same content."""
    found: list[tuple[int, int]] = []
    for start, stop in _data(fd, size):
        place = start - start % PIECE
        while place < stop:
            piece = os.pread(fd, min(PIECE, size - place), place)
            if not piece:
                break
            if piece != _ZEROS[: len(piece)]:
                if found and found[-1][0] + found[-1][1] == place:
                    found[-1] = (found[-1][0], found[-1][1] + len(piece))
                elif not found or place > found[-1][0]:
                    found.append((place, len(piece)))
            place += PIECE
    return found


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """What the file system calls data: it knows holes without reading them. Pieces are merged, ascending."""
    place = 0
    while place < size:
        try:
            start = os.lseek(fd, place, os.SEEK_DATA)
            stop = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            if error.errno == errno.EINVAL:  # a file system that knows no holes
                yield place, size
                return
            raise
        stop = min(stop, size)
        yield max(start, place), stop
        # a piece that was looked at as a whole is not looked at again
        place = max(stop, min(size, -(-stop // PIECE) * PIECE))


def sparse_map(parts: Iterable[tuple[int, int]], size: int) -> bytes:
    """The map that precedes the content of a file with holes (pax, format 1.0), before it is padded."""
    listed = list(parts)
    if not listed or listed[-1][0] + listed[-1][1] < size:
        listed.append((size, 0))
    numbers = [len(listed)] + [number for part in listed for number in part]
    return b"".join(b"%d\n" % number for number in numbers)
