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
from pathlib import Path

from commands.parts.errors import Refused
from commands.parts.tools import patience, run
from commands.parts.writer import EDGE, Writer


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

    def partitions(self) -> dict:
        """Return the sysfs folders of the partitions by number, in the order of their place on the disk."""
        found = sorted(self.sysfs.glob("*/partition"), key=lambda mark: int((mark.parent / "start").read_text()))
        return {int(mark.read_text()): mark.parent for mark in found}

    def extents(self) -> dict:
        """Return start and length of the partitions by number, in sectors, as the kernel has them."""
        return {
            number: (int((folder / "start").read_text()), int((folder / "size").read_text()))
            for number, folder in self.partitions().items()
        }

    def uses(self) -> list:
        """Say what holds the disk or a partition of it: md and device mapper, mounts, swap; each with the way out."""
        folders = [self.sysfs, *self.partitions().values()]
        numbers = {(folder / "dev").read_text().strip() for folder in folders}
        found = []
        for holder in sorted({path.name for folder in folders for path in folder.glob("holders/*")}):
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
            for _pause in patience(10):
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
        """Open the disk for writing, only if nothing else in the kernel uses it."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_EXCL)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            raise Refused("root device %s: it is in use (another mount namespace or program)" % self.path) from None
        try:
            yield fd
        finally:
            os.close(fd)

    def believe(self, wanted: dict) -> None:
        """Make the kernel's partitions those wanted, by number: start and length, see extents().

        Not by partx, which stops at gaps in the numbers; not by a scan, which not every kernel does on every device.
        """
        for _pause in patience(10):
            present = self.extents()
            if present == wanted:
                return
            for number, (start, length) in {**present, **wanted}.items():
                now = present.get(number, (-1, -1))
                with contextlib.suppress(Refused):  # udev or the lab may tell the kernel at the same moment
                    if number not in wanted or (number in present and now[0] != start):
                        run("delpart", self.path, str(number))
                    elif number in present and now[1] != length:
                        run("resizepart", self.path, str(number), str(length))
                    elif number not in present:
                        run("addpart", self.path, str(number), str(start), str(length))
        raise Refused("root device %s: the kernel does not take its new partitions" % self.path)

    def spoil(self) -> None:
        """Make the disk unbootable again."""
        fd = os.open(self.path, os.O_RDWR)
        try:
            Writer(fd, self.size).spoil()
        finally:
            os.close(fd)
        with contextlib.suppress(Refused):
            self.believe({})


def device_number(path: str) -> str:
    """Return MAJOR:MINOR of a block device node, or nothing."""
    with contextlib.suppress(OSError, ValueError):
        status = Path(path).stat()
        if stat.S_ISBLK(status.st_mode):
            return "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
    return ""
