# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Headers of pax archives, the same bytes for the same facts (pure).

Python's tarfile would do, but for what prebaked systems hold: binary extended attributes, and files with holes.
"""

from __future__ import annotations

from collections.abc import Mapping

BLOCK = 512
FILE, HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"
PAX = b"x"
END = bytes(2 * BLOCK)

_NAME_BYTES = 100
_LARGEST_ID = 0o7777777
_LARGEST = 0o77777777777
#: The name of a header that tells more of the next one; readers never make a file of it.
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
