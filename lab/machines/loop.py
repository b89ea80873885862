# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loop devices: a file as a block device with partitions, which the kernel removes when it is not in use any more.

`DiskWatcher` looks after those of running guests, where no udev follows what happens to them: the kernel says what
changed, the lab looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lab.errors import LabError

from .host_commands import HostSettings
from .partition_table import HEAD, NoTable, Partition, read

_SET_FD_AND_CONFIG = 0x4C0A  # LOOP_CONFIGURE
_GET_FREE = 0x4C82  # LOOP_CTL_GET_FREE
_CLEAR = 0x4C01  # LOOP_CLR_FD
_IS_READ_ONLY = 0x125E  # BLKROGET
_SET_READ_ONLY = 0x125D  # BLKROSET
_AUTOCLEAR, _PARTSCAN = 4, 8
_BLKPG = 0x1269
_ADD, _DELETE, _RESIZE = 1, 2, 3


class Loop:
    """A file attached to a loop device with partitions, for as long as this object or a mount holds it."""

    def __init__(self, file: Path) -> None:
        """Attach ``file``."""
        self.fd, self.number = _attach(file)
        self.device = Path(f"/dev/loop{self.number}")
        # The kernel keeps both settings on the device: what an earlier user of it chose, and what we choose.
        self._was_read_only = self.read_only
        self._protect(False)
        # Let writes end in the host's memory: a lab outlives its guests' power cuts, never the host's own.
        HostSettings().change(_cache_mode(self.number), "write through")

    def partitions(self) -> dict[int, tuple[int, int]]:
        """Partition number → (major, minor), as the kernel knows them now."""
        found = {}
        for number, values in self._attributes("dev").items():
            major, minor = values[0].split(":")
            found[number] = int(major), int(minor)
        return found

    def geometry(self) -> dict[int, tuple[int, int]]:
        """Partition number → (start, size) in bytes, as the kernel knows them now."""
        return {number: (512 * int(v[0]), 512 * int(v[1])) for number, v in self._attributes("start", "size").items()}

    def _attributes(self, *names: str) -> dict[int, list[str]]:
        """Partition number → values of these sysfs attributes."""
        found = {}
        for folder in Path(f"/sys/block/loop{self.number}").glob(f"loop{self.number}p*"):
            with contextlib.suppress(OSError):  # taken away while we look
                number = int((folder / "partition").read_text())
                found[number] = [(folder / name).read_text().strip() for name in names]
        return dict(sorted(found.items()))

    async def released(self, limit: float = 180) -> None:
        """Wait until no file system on this device is mounted any more: the kernel unmounts some time after a kill."""
        deadline = time.monotonic() + limit
        while self._mounted():
            if time.monotonic() > deadline:
                raise LabError(f"a file system on {self.device} is still in use {limit:.0f} s after its machine ended")
            await asyncio.sleep(0.005)

    def _mounted(self) -> bool:
        for node in (self.device, *(Path(f"{self.device}p{number}") for number in self.partitions())):
            try:
                os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno == errno.EBUSY:
                    return True
                raise
        return False

    @property
    def read_only(self) -> bool:
        """Whether the kernel refuses writes to the device (a guest may have asked for that)."""
        return bool(struct.unpack("i", fcntl.ioctl(self.fd, _IS_READ_ONLY, bytes(4)))[0])

    def flush(self) -> None:
        """Write what was written to the device into the file."""
        os.fsync(self.fd)

    def close(self) -> None:
        """Let go, and leave the device as it was found; it is gone as soon as the last mount is."""
        if self.fd >= 0:
            self._protect(self._was_read_only)
            HostSettings().give_back(_cache_mode(self.number))
            self.hand_over()

    def hand_over(self) -> None:
        """Leave the device to the mount that holds it; `give_back` when that has ended."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _protect(self, read_only: bool) -> None:
        if self.read_only != read_only:
            fcntl.ioctl(self.fd, _SET_READ_ONLY, struct.pack("i", read_only))


def give_back() -> tuple[list[str], list[str]]:
    """Give unused loop devices the cache mode that they had before; returns their names, and those in use."""
    given: list[str] = []
    in_use: list[str] = []

    def used(name: str) -> bool:
        if attached(int(name[4:])):
            in_use.append(name)
        return name in in_use

    for setting in HostSettings().all():
        name = setting.parents[1].name
        ours = name.startswith("loop") and setting == _cache_mode(int(name[4:]))
        if ours and HostSettings().give_back(setting, unless=functools.partial(used, name)) is not None:
            given.append(name)
    return given, in_use


def attached(number: int) -> bool:
    """Whether a device has a file."""
    return Path(f"/sys/block/loop{number}/loop").exists()


def mounted_at(folder: Path) -> list[int]:
    """The devices whose file systems are mounted there."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        source = fields[fields.index("-") + 2]
        if fields[4] == str(folder) and source.startswith("/dev/loop"):
            found.append(int(source.removeprefix("/dev/loop")))
    return found


def _cache_mode(number: int) -> Path:
    return Path(f"/sys/block/loop{number}/queue/write_cache")


def _attach(file: Path) -> tuple[int, int]:
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        with open("/dev/loop-control", "rb") as control:
            for _attempt in range(100):  # another process may take the free device first
                number = _free(control)
                fd = os.open(_node(number), os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(fd, _SET_FD_AND_CONFIG, _config(backing, file))
                except OSError as error:
                    os.close(fd)
                    if error.errno != errno.EBUSY:
                        raise
                    continue
                return fd, number
    finally:
        os.close(backing)
    raise LabError(f"no free loop device for {file} after 100 tries")


def _free(control: BinaryIO) -> int:
    """The number of an unused device; another process may take it at the next moment."""
    return fcntl.ioctl(control, _GET_FREE)


def _node(number: int) -> str:
    """The device node; made by hand where /dev is not the kernel's own."""
    path = f"/dev/loop{number}"
    if not os.path.exists(path):
        os.mknod(path, 0o60660, os.makedev(7, number))
    return path


def _config(backing: int, file: Path) -> bytes:
    """struct loop_config with a struct loop_info64 inside."""
    name = os.fsencode(file.name)[:63]
    info = struct.pack("<QQQQQIIII64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR | _PARTSCAN, name, b"", b"", 0, 0)
    return struct.pack("<II", backing, 512) + info + bytes(64)


def detach_all(below: Path) -> int:
    """Detach every loop device whose file lies below a folder (left by a lab that died); returns how many."""
    count = 0
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        if not _backing_file(entry).is_relative_to(below):
            continue
        fd = os.open(f"/dev/{entry.parts[3]}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Its number may have gone to another file; as long as it is open here, it does not.
            if not _backing_file(entry).is_relative_to(below):
                continue
            fcntl.ioctl(fd, _SET_READ_ONLY, struct.pack("i", 0))  # a guest of the dead lab may have protected it
            fcntl.ioctl(fd, _CLEAR)
            count += 1
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.EBUSY):
                raise
        finally:
            os.close(fd)
    return count


def _backing_file(entry: Path) -> Path:
    """The file of a loop device; an empty path when it has none."""
    try:
        return Path(entry.read_text().strip().removesuffix(" (deleted)"))
    except OSError:
        return Path()


def sync_partitions(loop: Loop, size: int) -> None:
    """Make the kernel's partitions equal to the table on the disk; partitions in use that would change are left."""
    try:
        table = {part.number: part for part in read(loop.fd, size)}
    except NoTable:
        table = {}
    present = loop.geometry()
    for number in present.keys() - table.keys():
        _tell_kernel(loop, _DELETE, Partition(number, "", 0, 0))
    for number, part in table.items():
        known = present.get(number)
        if known == (part.start, part.size):
            continue
        if known and known[0] == part.start:
            _tell_kernel(loop, _RESIZE, part)
            continue
        if known:
            _tell_kernel(loop, _DELETE, part)
        _tell_kernel(loop, _ADD, part)


def _tell_kernel(loop: Loop, operation: int, part: Partition) -> None:
    details = ctypes.create_string_buffer(struct.pack("<qqi64s64s4x", part.start, part.size, part.number, b"", b""))
    request = struct.pack("<iiiiQ", operation, 0, len(details.raw), 0, ctypes.addressof(details))
    with contextlib.suppress(OSError):  # busy: as on any machine, the old partition stays until it is released
        fcntl.ioctl(loop.fd, _BLKPG, request)


_CLOSE_WRITE, _OVERFLOW, _IGNORED = 0x8, 0x4000, 0x8000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)
_UEVENTS = 15  # NETLINK_KOBJECT_UEVENT
_SO_RCVBUFFORCE = 33
_LOOK_EVERY = 0.1  # seconds
_BURST = 0.02  # seconds
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
        #: Devices that a program has written to and closed, a moment ago: one who works on a disk opens it often.
        self._closed: set[int] = set()
        self._later: asyncio.TimerHandle | None = None
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
        if self._later:
            self._later.cancel()
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
        found = (
            set(self._watched) if closed.overflowed else {self._nodes[w] for w in closed.watches if w in self._nodes}
        )
        if found and not self._closed:
            self._later = self._loop.call_later(_BURST, self._call_closed)
        self._closed |= found

    def _call_closed(self) -> None:
        closed, self._closed = self._closed, set()
        self._call(closed)

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
