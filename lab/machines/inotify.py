# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""inotify(7): which files were closed after they had been open for writing."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path

_CLOSE_WRITE, _OVERFLOW, _IGNORED = 0x8, 0x4000, 0x8000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Closed:
    """What happened since the last look."""

    watches: set[int]
    ended: set[int]  # watches whose file is gone
    overflowed: bool  # more happened than the kernel kept


class Inotify:
    """A set of watches; several paths of one file share one watch."""

    def __init__(self) -> None:
        """No watches yet."""
        self.fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch_closed(self, path: Path) -> int:
        """The watch of a file; an `OSError` when there is no such file."""
        return _checked(_libc.inotify_add_watch(self.fd, os.fsencode(path), _CLOSE_WRITE))

    def remove(self, watch: int) -> None:
        """Drop a watch; nothing happens when it has ended already."""
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Closed:
        """What happened; nothing, when nothing did."""
        watches: set[int] = set()
        ended: set[int] = set()
        overflowed = False
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                return Closed(watches, ended, overflowed)
            position = 0
            while position < len(data):
                watch, mask, _cookie, length = _EVENT.unpack_from(data, position)
                position += _EVENT.size + length
                overflowed |= bool(mask & _OVERFLOW)
                if mask & _IGNORED:
                    ended.add(watch)
                elif mask & _CLOSE_WRITE:
                    watches.add(watch)

    def close(self) -> None:
        """Drop everything."""
        os.close(self.fd)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
