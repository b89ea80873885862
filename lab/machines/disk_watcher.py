# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks of running guests, where no udev follows what happens to them: the kernel says what changed, the lab looks."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import socket
import stat
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .loop import Loop
from .partition_table import HEAD

_CLOSE_WRITE, _OVERFLOW, _IGNORED = 0x8, 0x4000, 0x8000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)
_UEVENTS = 15  # NETLINK_KOBJECT_UEVENT
_SO_RCVBUFFORCE = 33
_LOOK_EVERY = 0.1  # seconds
_DEVICE = re.compile(rb"\0DEVNAME=loop(\d+)(?:p\d+)?\0")


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
        os.close(self.fd)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class DiskWatcher:
    """Calls a function when the partitions of a loop device, or what is on it, may have changed.

    Three sources: the kernel's events, which come at once; the end of writing through a node that the guest has
    (what udev goes by, too); and a look at the first sectors, since a kernel without knowledge of partition tables
    sends no event for a new table and a writer may keep the disk open.
    """

    def __init__(self) -> None:
        """Start in the running event loop."""
        self._watched: dict[int, tuple[Loop, Callable[[], None]]] = {}
        self._heads: dict[int, bytes] = {}
        self._nodes: dict[int, int] = {}  # inotify's watch → number of the loop device
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _UEVENTS)
        with contextlib.suppress(OSError):  # larger than the limit needs CAP_NET_ADMIN
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        self._socket.bind((0, 1))
        self._inotify = Inotify()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read_events)
        self._loop.add_reader(self._inotify.fd, self._read_closed)
        self._task = self._loop.create_task(self._look(), name="partition tables")

    def watch(self, loop: Loop, changed: Callable[[], None]) -> None:
        """Call ``changed`` after changes of a loop device."""
        self._heads[loop.number] = _head(loop)
        self._watched[loop.number] = (loop, changed)

    def watch_nodes(self, loop: Loop, nodes: Iterable[Path]) -> None:
        """Take the end of writing through these nodes for a change of a loop device that is being watched."""
        for node in nodes:
            with contextlib.suppress(OSError):  # it has gone, or its guest has
                self._nodes[self._inotify.watch_closed(node)] = loop.number

    def forget(self, loop: Loop) -> None:
        self._watched.pop(loop.number, None)
        for watch in [watch for watch, number in self._nodes.items() if number == loop.number]:
            self._inotify.remove(watch)
            del self._nodes[watch]

    def close(self) -> None:
        self._task.cancel()
        self._loop.remove_reader(self._socket)
        self._loop.remove_reader(self._inotify.fd)
        self._socket.close()
        self._inotify.close()

    def _read_events(self) -> None:
        due: set[int] = set()
        while True:
            try:
                message = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError:  # the kernel dropped events: look at all devices
                due.update(self._watched)
                continue
            match = _DEVICE.search(message)
            if match:
                due.add(int(match[1]))
        self._call(due)

    def _read_closed(self) -> None:
        closed = self._inotify.read()
        for watch in closed.ended:
            self._nodes.pop(watch, None)
        self._call(
            set(self._watched) if closed.overflowed else {self._nodes[w] for w in closed.watches if w in self._nodes}
        )

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            self._call(await asyncio.to_thread(self._changed_heads))

    def _changed_heads(self) -> set[int]:
        changed = set()
        for number, (loop, _seen) in list(self._watched.items()):
            with contextlib.suppress(OSError):  # let go of while we look
                head = _head(loop)
                if head != self._heads.get(number):
                    self._heads[number] = head
                    changed.add(number)
        return changed

    def _call(self, numbers: set[int]) -> None:
        for number in numbers & self._watched.keys():
            self._watched[number][1]()


def _head(loop: Loop) -> bytes:
    """What is compared now and then: the first sectors, and the read-only flag, of which the kernel sends no event."""
    return os.pread(loop.fd, HEAD, 0) + bytes([loop.read_only])


def mirror_nodes(root: Path, disks: Iterable[str], nodes: dict[str, tuple[int, int]]) -> None:
    """Make the partition nodes of some disks in a guest's /dev (``root`` is /proc/PID/root) equal to ``nodes``."""
    dev = root / "dev"
    partition = re.compile("|".join(f"{disk}p?[0-9]+" for disk in disks))
    try:
        if os.stat(dev).st_dev == os.stat("/dev").st_dev:  # the guest has not left the host's tree yet
            return
        present = {name for name in os.listdir(dev) if partition.fullmatch(name)}
    except OSError:  # the guest is gone or not there yet
        return
    wanted = {name: os.makedev(*device) for name, device in nodes.items() if partition.fullmatch(name)}
    for name in present - wanted.keys():
        _gone(dev / name)
    for name, device in wanted.items():
        with contextlib.suppress(OSError):
            if name in present and os.stat(dev / name).st_rdev == device:
                continue
            _gone(dev / name)
            os.mknod(dev / name, stat.S_IFBLK | 0o660, device)
            os.chmod(dev / name, 0o660)


def _gone(node: Path) -> None:
    with contextlib.suppress(OSError):
        node.unlink()
