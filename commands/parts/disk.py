# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root device: found, checked, locked, and its partitions in the kernel."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from array import array
from pathlib import Path
from typing import NamedTuple

from commands.parts.errors import Refused
from commands.parts.tools import patience
from commands.parts.writer import EDGE, Writer

#: From linux/blkpg.h.
BLKPG = 0x1269
ADD, DELETE, RESIZE = 1, 2, 3


class KernelPartition(NamedTuple):
    """A partition as the kernel has it; start and length in sectors of 512 bytes, device as major:minor."""

    start: int
    length: int
    device: str
    folder: Path


class Disk:
    """The root device. It is told apart by its device number, since names differ between a machine and its lab."""

    def __init__(self, name: str):
        ways = ("", "/dev/", "/dev/disk/by-id/", "/dev/disk/by-id/wwn-", "/dev/disk/by-id/nvme-")
        found = [way + name for way in ways if (way or name.startswith("/")) and Path(way + name).exists()]
        if not found:
            raise Refused("root device %r: no such device (kernel name, by-id name or WWN)" % name)
        self.path = str(Path(found[0]).resolve())
        status = Path(self.path).stat()
        if not stat.S_ISBLK(status.st_mode):
            raise Refused("root device %s: it is not a block device" % self.path)
        self.number = "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
        self.sysfs = Path("/sys/dev/block") / self.number
        if not self.sysfs.exists():
            raise Refused("root device %s: the kernel knows no device %s" % (self.path, self.number))
        if (self.sysfs / "partition").exists():
            raise Refused("root device %s: it is a partition; name the whole disk" % self.path)
        self.size = int((self.sysfs / "size").read_text()) * 512
        self.sector = int((self.sysfs / "queue/logical_block_size").read_text())
        self.touched = False

    def check(self) -> None:
        """Refuse a disk that must not or cannot be written."""
        if (self.sysfs / "ro").read_text().strip() != "0":
            raise Refused("root device %s: it is read-only" % self.path)
        if self.size < 4 * EDGE:
            raise Refused("root device %s: it is too small, %d bytes" % (self.path, self.size))
        uses = self.uses()
        if uses:
            raise Refused("root device %s: it is in use: %s" % (self.path, "; ".join(uses)))

    def kernel_partitions(self) -> dict:
        """Return what the kernel has, by number in the order of place."""
        return kernel_partitions(self.sysfs)

    def partition_device(self, number: int) -> str:
        """Return the device number of a partition; wait for one that is being told to the kernel anew."""
        for _pause in patience():
            found = self.kernel_partitions().get(number)
            if found:
                return found.device
        raise Refused("root device %s: partition %d has gone from the kernel" % (self.path, number))

    def extents(self) -> dict:
        """Return start and length of the partitions by number, in sectors, as the kernel has them."""
        return {number: (one.start, one.length) for number, one in self.kernel_partitions().items()}

    def uses(self) -> list:
        """Say what holds the disk or a partition of it: md and device mapper, mounts, swap; each with the way out."""
        partitions = self.kernel_partitions().values()
        folders = [self.sysfs, *(one.folder for one in partitions)]
        numbers = {self.number, *(one.device for one in partitions)}
        found = []
        for holder in sorted({name for folder in folders for name in entries(folder / "holders")}):
            label = Path("/sys/class/block") / holder / "dm/name"
            mapped = label.read_text().strip() if label.exists() else ""
            way = "dmsetup remove %s" % mapped if mapped else "mdadm --stop /dev/%s" % holder
            found.append("held by %s (%s)" % (mapped or holder, way))
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            origin = fields[fields.index("-") + 2]
            if fields[2] in numbers or device_number(origin) in numbers:
                found.append("mounted on %s (umount it)" % fields[4])
        for line in Path("/proc/swaps").read_text().splitlines()[1:]:
            if device_number(line.split()[0]) in numbers:
                found.append("swap (swapoff %s)" % line.split()[0])
        return found

    @contextlib.contextmanager
    def locked(self):
        """Hold the lock that keeps udev from probing the disk while it changes; wait for a probe under way."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            for _pause in patience():
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
            else:
                raise Refused("root device %s: another program holds its lock" % self.path)
            yield
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def exclusive(self):
        """Open the disk for writing, only if nothing else in the kernel uses it; wait for what lets go in a moment.

        A mount that has just ended lives on for a while in mount namespaces that copied it (service sandboxes).
        """
        fd = -1
        for _pause in patience(60):
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_EXCL)
                break
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
        else:
            raise Refused("root device %s: it is in use (another mount namespace or program)" % self.path)
        try:
            yield fd
        finally:
            os.close(fd)

    def believe(self, wanted: dict) -> None:
        """Make the kernel's partitions those wanted, by number: start and length, see extents().

        Not by partx, which stops at gaps in the numbers; not by a scan, which not every kernel does on every device.
        """
        refused = ""
        for _pause in patience():
            present = self.extents()
            if present == wanted:
                return
            fd = os.open(self.path, os.O_RDONLY)
            try:
                for operation, number, extent in changes(present, wanted):
                    try:
                        change_partition(fd, operation, number, *extent)
                    except OSError as error:  # udev or the lab may tell the kernel at the same moment
                        refused = ": partition %d: %s" % (number, os.strerror(error.errno or 0))
            finally:
                os.close(fd)
        raise Refused("root device %s: the kernel does not take its new partitions%s" % (self.path, refused))

    def spoil(self) -> None:
        """Make the disk unbootable again."""
        fd = os.open(self.path, os.O_RDWR)
        try:
            Writer(fd, self.size).spoil()
        finally:
            os.close(fd)
        with contextlib.suppress(Refused):
            self.believe({})


def changes(present: dict, wanted: dict) -> list:
    """Return what makes the partitions present those wanted, as (operation, number, (start, length)); pure."""
    found = []
    for number, (start, length) in sorted({**present, **wanted}.items()):
        if number not in wanted or (number in present and present[number][0] != start):
            found.append((DELETE, number, (0, 0)))
        elif number not in present:
            found.append((ADD, number, (start, length)))
        elif present[number][1] != length:
            found.append((RESIZE, number, (start, length)))
    return found


def change_partition(fd: int, operation: int, number: int, start: int, length: int) -> None:
    """Add, delete or resize a partition of the kernel's; start and length in sectors of 512 bytes."""
    partition = array("b", struct.pack("=qqi64s64s4x", start * 512, length * 512, number, b"", b""))
    fcntl.ioctl(fd, BLKPG, struct.pack("iiiP", operation, 0, len(partition), partition.buffer_info()[0]))


def device_number(path: str) -> str:
    """Return MAJOR:MINOR of a block device node, or nothing."""
    with contextlib.suppress(OSError, ValueError):
        status = Path(path).stat()
        if stat.S_ISBLK(status.st_mode):
            return "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
    return ""


def entries(folder: Path) -> list:
    """Return the names in a folder of the kernel's, none when it has just gone."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def kernel_partitions(sysfs: Path) -> dict:
    """Return the partitions below the sysfs folder of a disk, by number in the order of place.

    Those that go while we look (udev, a scan of the kernel, the lab) are left out.
    """
    found = []
    for folder in (sysfs / name for name in entries(sysfs)):
        with contextlib.suppress(OSError, ValueError):
            number, start, length = (int((folder / name).read_text()) for name in ("partition", "start", "size"))
            found.append((start, number, length, (folder / "dev").read_text().strip(), folder))
    return {number: KernelPartition(start, *others) for start, number, *others in sorted(found)}
