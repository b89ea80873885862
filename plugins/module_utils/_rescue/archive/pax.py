# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The pax format of archives: headers, and the maps of files with holes. The same bytes for the same facts.

Python's tarfile would do, but for what prebaked systems hold: binary extended attributes, and files with holes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping

# --- Headers of pax archives, the same bytes for the same facts (pure).


BLOCK = 512
FILE, HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
PAX = b"x"
END = bytes(2 * BLOCK)

_NAME_BYTES = 100
_LARGEST_ID = 0o7777777
_LARGEST = 0o77777777777
#: The name of a header with more fields of the next one; readers never make a file of it.
_MORE = b"./PaxHeaders/more"


def member(
    name: bytes,
    kind: bytes,
    mode: int,
    uid: int,
    gid: int,
    mtime: int,
    size: int = 0,
    target: bytes = b"",
    device: tuple[int, int] = (0, 0),
    more: Mapping[bytes, bytes] | None = None,
) -> bytes:
    """All header blocks of one member, as bytes. ``name`` and ``target``: bytes; ``mtime``: whole seconds.

    ``more``: pax records (bytes → bytes) beside those that the facts themselves need.
    """
    records = dict(more or {})
    if len(name) > _NAME_BYTES:
        records.setdefault(b"path", name)
    if len(target) > _NAME_BYTES:
        records[b"linkpath"] = target
    for key, value, largest in ((b"size", size, _LARGEST), (b"uid", uid, _LARGEST_ID), (b"gid", gid, _LARGEST_ID)):
        if value > largest:
            records[key] = b"%d" % value
    if not 0 <= mtime <= _LARGEST:
        records[b"mtime"] = b"%d" % mtime
    before = b""
    if records:
        content = b"".join(_record(key, records[key]) for key in sorted(records))
        before = _ustar(_MORE, PAX, 0o644, 0, 0, 0, len(content), b"", (0, 0)) + padded(content)
    return before + _ustar(name, kind, mode, uid, gid, mtime, size, target, device)


def padded(content: bytes) -> bytes:
    """Bytes, filled up to whole blocks."""
    return content + bytes(-len(content) % BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    """``LENGTH key=value`` and a new line, where LENGTH counts itself."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while length != len(b"%d" % length) + len(rest):
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _ustar(
    name: bytes,
    kind: bytes,
    mode: int,
    uid: int,
    gid: int,
    mtime: int,
    size: int,
    target: bytes,
    device: tuple[int, int],
) -> bytes:
    fields = [
        name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        _octal(mode & 0o7777, 8),
        _octal(uid if uid <= _LARGEST_ID else 0, 8),
        _octal(gid if gid <= _LARGEST_ID else 0, 8),
        _octal(size if size <= _LARGEST else 0, 12),
        _octal(mtime if 0 <= mtime <= _LARGEST else 0, 12),
        b" " * 8,
        kind,
        target[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        b"ustar\x0000",
        bytes(64),  # names of owner and group: numbers count
        _octal(device[0], 8),
        _octal(device[1], 8),
    ]
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _octal(number: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, number)


# --- Where a file holds anything but zeros, so that a file of holes takes no more room than it has content.


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
