# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A tree as an archive: the same tree gives the same bytes, wherever and whenever it is packed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

from . import header, holes, tree
from .errors import NotPacked, shown

_PIECE = 1 << 20


class Packing:
    """Writes one archive. ``members`` and ``bytes`` (of content) count what went in."""

    def __init__(self, source: tree.Tree, epoch: int, write: Callable[[bytes], object]) -> None:
        """``source``: a :class:`tree.Tree`; ``epoch``: no member is younger (seconds); ``write``: takes bytes."""
        self._tree, self._epoch, self._write = source, epoch, write
        self.members = self.bytes = 0

    def run(self) -> None:
        """Pack everything, the end of the archive included."""
        for member in self._tree.members():
            self._put(member)
            self.members += 1
        self._write(header.END)

    def _put(self, member: tree.Member) -> None:
        path, info = self._tree.path(member), member.info
        records = {} if member.kind == header.HARD_LINK else tree.attributes(path)
        facts: dict[str, Any] = {
            "kind": member.kind,
            "mode": stat.S_IMODE(info.st_mode),
            "uid": info.st_uid,
            "gid": info.st_gid,
            "mtime": min(int(info.st_mtime_ns // 10**9), self._epoch),
            "target": b"./" + member.link if member.kind == header.HARD_LINK else member.link,
        }
        name = b"./" + member.name
        if member.kind == header.FOLDER and member.name:
            name += b"/"
        if member.kind != header.FILE or not info.st_size:
            self._write(header.member(name, more=records, **facts))
            return
        fd = _open(path, info)
        try:
            parts = holes.segments(fd, info.st_size) if info.st_blocks * 512 < info.st_size else []
            if parts or _all_hole(info):
                self._sparse(name, fd, info.st_size, parts, facts, records)
            else:
                self._write(header.member(name, size=info.st_size, more=records, **facts))
                self._content(fd, [(0, info.st_size)], name)
            # a file that changes meanwhile would be half one and half the other
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if (after.st_size, after.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
            raise NotPacked("%s changed while it was packed; pack a file system that nobody uses" % shown(name))

    def _sparse(
        self,
        name: bytes,
        fd: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        facts: dict[str, Any],
        records: dict[bytes, bytes],
    ) -> None:
        listed = header.padded(holes.sparse_map(parts, size))
        stored = len(listed) + sum(length for _place, length in parts)
        if stored >= size:
            self._write(header.member(name, size=size, more=records, **facts))
            self._content(fd, [(0, size)], name)
            return
        folder, _slash, base = name.rpartition(b"/")
        more = dict(records)
        more.update(
            {
                b"GNU.sparse.major": b"1",
                b"GNU.sparse.minor": b"0",
                b"GNU.sparse.name": name,
                b"GNU.sparse.realsize": b"%d" % size,
            }
        )
        self._write(header.member(folder + b"/GNUSparseFile.0/" + base, size=stored, more=more, **facts))
        self._write(listed)
        self._content(fd, parts, name)

    def _content(self, fd: int, parts: Sequence[tuple[int, int]], name: bytes) -> None:
        total = 0
        for place, length in parts:
            total += length
            while length:
                piece = os.pread(fd, min(_PIECE, length), place)
                if not piece:
                    raise NotPacked("%s became shorter while it was packed" % shown(name))
                self._write(piece)
                place, length = place + len(piece), length - len(piece)
        self._write(bytes(-total % header.BLOCK))
        self.bytes += total


def _open(path: bytes, info: os.stat_result) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags)
    found = os.fstat(fd)
    if (found.st_dev, found.st_ino) != (info.st_dev, info.st_ino):
        with contextlib.suppress(OSError):
            os.close(fd)
        raise NotPacked("%s was replaced while it was packed; pack a file system that nobody uses" % shown(path))
    return fd


def _all_hole(info: os.stat_result) -> bool:
    return info.st_blocks == 0 and info.st_size > 0
