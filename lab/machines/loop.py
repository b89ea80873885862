# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loop devices: a file as a block device with partitions, which the kernel removes when it is not in use any more."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import struct
import time
from pathlib import Path
from typing import BinaryIO

from lab.errors import LabError

from .host_commands import HostSettings
from .partition_table import NoTable, Partition, read

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
        try:
            file = entry.read_text().strip().removesuffix(" (deleted)")
        except OSError:
            continue
        if not Path(file).is_relative_to(below):
            continue
        fd = os.open(f"/dev/{entry.parts[3]}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _SET_READ_ONLY, struct.pack("i", 0))  # a guest of the dead lab may have protected it
            fcntl.ioctl(fd, _CLEAR)
            count += 1
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.EBUSY):
                raise
        finally:
            os.close(fd)
    return count


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
