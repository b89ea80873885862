# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The root device: found, checked, locked, written, with its partitions in the kernel and its partition table."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import stat
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Dict, NamedTuple, Tuple

from ..._common import mounts
from ..._common.text import json_value
from .basics import BLOCK, LIBC, MIB, Refused, patience, run

# --- Writes an image to a device, all but what would make it boot.


GRAIN = 256 * 1024  # a zero run is found in steps of this
ZEROS = bytes(GRAIN)
EDGE = MIB  # the two ends of a disk that make it bootable; on the disk only when the image is proven


class Writer:
    """Writes an image to an open device, all but what would make it boot.

    The first and the last MiB of the device are zeroed before anything else, and what belongs there is kept back. Runs
    of zeros are not written but zeroed by the device, so what was on it before never shines through.
    """

    BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F
    PUNCH = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    START = 0x02  # SYNC_FILE_RANGE_WRITE

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self.position = self.written = self.zeros = 0
        self.tail = max((size - EDGE) // GRAIN * GRAIN, 0)
        self.held: list[tuple[int, bytes]] = []
        self.ways = [self._punch, self._zeroout, self._overwrite]

    def prepare(self) -> None:
        """Discard what is on the device and make it unbootable."""
        with contextlib.suppress(OSError):  # good for SSDs and snapshots; nothing here relies on it
            fcntl.ioctl(self.fd, self.BLKDISCARD, struct.pack("QQ", 0, self.size))
        self.spoil()

    def spoil(self) -> None:
        """Zero both ends of the device: no boot code, no partition table, no signature is left."""
        self.zero(0, min(EDGE, self.size))
        self.zero(self.tail, self.size - self.tail)
        os.fsync(self.fd)

    def write(self, block: bytes) -> None:
        if self.position + len(block) > self.size:
            raise Refused(f"image: it is larger than the device of {self.size} bytes")
        view = memoryview(block)
        data = None  # where in the block a run of data began
        for start in range(0, len(block), GRAIN):
            place = self.position + start
            piece = block[start : start + GRAIN]
            empty = piece == ZEROS[: len(piece)]
            edge = place < EDGE or place + len(piece) > self.tail
            if (empty or edge) and data is not None:
                self.put(view[data:start], self.position + data)
                data = None
            if edge:
                self._settle(place)
                if not empty:
                    self.held.append((place, piece))
            elif empty:
                self.zeros += len(piece)
            elif data is None:
                data = start
                self._settle(place)
        if data is not None:
            self.put(view[data:], self.position + data)
        self.position += len(block)

    def finish(self) -> tuple[bytes, int, bytes]:
        """Bring the image onto the device; return what was kept back: first MiB, place of the tail, tail."""
        self._settle(self.position)
        os.fsync(self.fd)
        ends = {0: bytearray(EDGE), self.tail: bytearray(self.size - self.tail)}
        for place, piece in self.held:
            start = self.tail if place >= self.tail else 0
            ends[start][place - start : place - start + len(piece)] = piece
        return bytes(ends[0]), self.tail, bytes(ends[self.tail])

    def put(self, view: memoryview, place: int) -> None:
        begin, length = place, len(view)
        while view:
            done = os.pwrite(self.fd, view, place)
            view, place = view[done:], place + done
            self.written += done
        LIBC.sync_file_range(self.fd, ctypes.c_int64(begin), ctypes.c_int64(length), self.START)  # no long flush later

    def _settle(self, place: int) -> None:
        if self.zeros:
            self.zero(place - self.zeros, self.zeros)
            self.zeros = 0

    def zero(self, start: int, length: int) -> None:
        """Make a range read as zeros, by the cheapest way the device really has."""
        for begin in range(start, start + length, 256 * MIB):
            count = min(256 * MIB, start + length - begin)
            while True:
                try:
                    (self._overwrite if count % 4096 else self.ways[0])(begin, count)
                    break
                except OSError as error:
                    if len(self.ways) == 1 or error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL):
                        raise
                    del self.ways[0]

    def _punch(self, start: int, length: int) -> None:
        if LIBC.fallocate(self.fd, self.PUNCH, ctypes.c_int64(start), ctypes.c_int64(length)):
            raise OSError(ctypes.get_errno(), "fallocate")

    def _zeroout(self, start: int, length: int) -> None:
        fcntl.ioctl(self.fd, self.BLKZEROOUT, struct.pack("QQ", start, length))

    def _overwrite(self, start: int, length: int) -> None:
        empty = memoryview(bytes(min(length, BLOCK)))
        for begin in range(0, length, BLOCK):
            self.put(empty[: length - begin], start + begin)


# --- The root device: found, checked, locked, and its partitions in the kernel.


#: From linux/blkpg.h.
BLKPG = 0x1269
ADD, DELETE, RESIZE = 1, 2, 3


#: Start and length of partitions by number, in sectors of 512 bytes.
Extents = Dict[int, Tuple[int, int]]


class KernelPartition(NamedTuple):
    """A partition as the kernel has it; start and length in sectors of 512 bytes, device as major:minor."""

    start: int
    length: int
    device: str
    folder: Path


class Disk:
    """The root device. It is identified by its device number, since names differ between a machine and its lab."""

    def __init__(self, name: str) -> None:
        ways = ("", "/dev/", "/dev/disk/by-id/", "/dev/disk/by-id/wwn-", "/dev/disk/by-id/nvme-")
        found = [way + name for way in ways if (way or name.startswith("/")) and Path(way + name).exists()]
        if not found:
            raise Refused(f"root device {name!r}: no such device (kernel name, by-id name or WWN)")
        self.path = str(Path(found[0]).resolve())
        status = Path(self.path).stat()
        if not stat.S_ISBLK(status.st_mode):
            raise Refused(f"root device {self.path}: it is not a block device")
        self.number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        self.sysfs = Path("/sys/dev/block") / self.number
        if not self.sysfs.exists():
            raise Refused(f"root device {self.path}: the kernel knows no device {self.number}")
        if (self.sysfs / "partition").exists():
            raise Refused(f"root device {self.path}: it is a partition; name the whole disk")
        self.size = int((self.sysfs / "size").read_text()) * 512
        self.sector = int((self.sysfs / "queue/logical_block_size").read_text())
        self.touched = False

    def check(self) -> None:
        """Refuse a disk that must not or cannot be written."""
        if (self.sysfs / "ro").read_text().strip() != "0":
            raise Refused(f"root device {self.path}: it is read-only")
        if self.size < 4 * EDGE:
            raise Refused(f"root device {self.path}: it is too small, {self.size} bytes")
        uses = self.uses()
        if uses:
            raise Refused(f"root device {self.path}: it is in use: {'; '.join(uses)}")

    def partition_device(self, number: int) -> str:
        """Return the device number of a partition; wait for one that the kernel is just learning again."""
        for _pause in patience():
            found = kernel_partitions(self.sysfs).get(number)
            if found:
                return found.device
        raise Refused(f"root device {self.path}: partition {number} has gone from the kernel")

    def extents(self) -> Extents:
        """Return start and length of the partitions by number, in sectors, as the kernel has them."""
        return {number: (one.start, one.length) for number, one in kernel_partitions(self.sysfs).items()}

    def uses(self) -> list[str]:
        """Say what holds the disk or a partition of it: md and device mapper, mounts, swap; each with the way out."""
        partitions = kernel_partitions(self.sysfs).values()
        folders = [self.sysfs, *(one.folder for one in partitions)]
        numbers = {self.number, *(one.device for one in partitions)}
        found = []
        for holder in sorted({name for folder in folders for name in entries(folder / "holders")}):
            label = Path("/sys/class/block") / holder / "dm/name"
            mapped = label.read_text().strip() if label.exists() else ""
            way = f"dmsetup remove {mapped}" if mapped else f"mdadm --stop /dev/{holder}"
            found.append(f"held by {mapped or holder} ({way})")
        for mount in mounts.read():
            if mount.device in numbers or device_number(mount.source) in numbers:
                found.append(f"mounted on {mount.point} (umount it)")
        for line in Path("/proc/swaps").read_text().splitlines()[1:]:
            if device_number(line.split()[0]) in numbers:
                found.append(f"swap (swapoff {line.split()[0]})")
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that keeps udev from probing the disk while it changes; wait for a probe under way."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            for _pause in patience():
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
            else:
                raise Refused(f"root device {self.path}: another program holds its lock")
            yield
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[int]:
        """Open the disk for writing, only if nothing else in the kernel uses it; wait for a user of it that soon ends.

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
            raise Refused(f"root device {self.path}: it is in use (another mount namespace or program)")
        try:
            yield fd
        finally:
            os.close(fd)

    def believe(self, wanted: Extents) -> None:
        """Set the kernel's partitions to those wanted, by number: start and length, see extents().

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
                    except OSError as error:  # udev or the lab may set them in the kernel at the same moment
                        refused = f": partition {number}: {os.strerror(error.errno or 0)}"
            finally:
                os.close(fd)
        raise Refused(f"root device {self.path}: the kernel does not take its new partitions{refused}")

    def spoil(self) -> None:
        """Make the disk unbootable again."""
        fd = os.open(self.path, os.O_RDWR)
        try:
            Writer(fd, self.size).spoil()
        finally:
            os.close(fd)
        with contextlib.suppress(Refused):
            self.believe({})


def changes(present: Extents, wanted: Extents) -> list[tuple[int, int, tuple[int, int]]]:
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
            return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return ""


def entries(folder: Path) -> list[str]:
    """Return the names in a folder of the kernel's, none when it has just gone."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def kernel_partitions(sysfs: Path) -> dict[int, KernelPartition]:
    """Return the partitions below the sysfs folder of a disk, by number in the order of place.

    Those that go while we look (udev, a scan of the kernel, the lab) are left out.
    """
    found = []
    for folder in (sysfs / name for name in entries(sysfs)):
        with contextlib.suppress(OSError, ValueError):
            number, start, length = (int((folder / name).read_text()) for name in ("partition", "start", "size"))
            found.append((number, KernelPartition(start, length, (folder / "dev").read_text().strip(), folder)))
    return dict(sorted(found, key=lambda pair: (pair[1].start, pair[0])))


class Partition:
    """One partition of the written disk and what is on it."""

    def __init__(self, number: int, disk: Disk, entry: dict[str, Any], work: Path) -> None:
        self.number, self.disk = number, disk
        self.node = self._node(disk.partition_device(number), work)
        self.partuuid = entry.get("uuid", "").lower()
        self.partlabel = entry.get("name", "")
        self.probe()

    def probe(self) -> None:
        probe = run("blkid", "-p", "-o", "export", self.node, accept=(0, 2, 8))
        tags = dict(line.split("=", 1) for line in probe.splitlines() if "=" in line)
        self.fs = tags.get("TYPE", "")
        self.label = tags.get("LABEL", "")
        self.uuid = tags.get("UUID", "")
        self.names = {"UUID=" + self.uuid, "LABEL=" + self.label}
        self.names |= {"PARTUUID=" + self.partuuid, "PARTLABEL=" + self.partlabel}

    def _node(self, number: str, work: Path) -> str:
        for name in (f"{self.disk.path}{self.number}", f"{self.disk.path}p{self.number}"):
            if device_number(name) == number:
                return name
        node = work / f"node-{self.number}-{number.replace(':', '-')}"  # no udev yet, or none at all
        if not node.exists():
            major, minor = number.split(":")
            os.mknod(str(node), stat.S_IFBLK | 0o600, os.makedev(int(major), int(minor)))
        return str(node)

    def __str__(self) -> str:
        return f"partition {self.number} ({self.fs or 'no file system'})"


class Table:
    """The partition table of the image, in a file as large as the disk until everything else is done.

    On the disk it would make half an installation bootable. In a file, sfdisk reads and changes it just as well. What
    the disk gets meanwhile is a table that no firmware boots from: without boot code, without EFI system partitions.
    Kernel, udev and every other reader find the partitions that the work is about.
    """

    BLKFLSBUF = 0x1261
    EFI = ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "ef")
    PLAIN = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
    SFDISK = ("sfdisk", "--quiet", "--force", "--no-reread", "--no-tell-kernel")

    def __init__(self, disk: Disk, work: Path, head: bytes, tail_start: int, tail: bytes, script: str = "") -> None:
        """Take the ends of a disk, see Writer.finish(); with a script for sfdisk make a new table."""
        self.disk, self.path, self.esp = disk, work / "table", False
        with self.path.open("wb") as stream:
            stream.truncate(disk.size)
            stream.write(head.rstrip(b"\0"))
            stream.seek(tail_start)
            stream.write(tail.rstrip(b"\0"))
        self.device = str(self.path)
        if disk.sector != 512:  # sfdisk assumes sectors of 512 bytes in a file
            size = str(disk.sector)
            self.device = run("losetup", "--find", "--show", "--sector-size", size, self.device).strip()
        if script:
            run(*self.SFDISK, self.device, stdin=script)
        self.unit = disk.sector // 512
        self.entries = self._read()
        self.front, self.back = len(head), len(tail)
        if self.entries:
            self.front = min(len(head), min(one["start"] for one in self.entries.values()) * disk.sector)
            self.back = 33 * disk.sector if self.gpt else 0
            with disk.exclusive() as fd:  # what of the two ends belongs to partitions
                writer = Writer(fd, disk.size)
                writer.put(memoryview(head)[self.front :], self.front)
                writer.put(memoryview(tail)[: len(tail) - self.back], tail_start)

    def close(self) -> None:
        if self.device != str(self.path):
            run("losetup", "--detach", self.device)

    def _read(self) -> dict[int, dict[str, Any]]:
        table = json_value(run("sfdisk", "--json", self.device))["partitiontable"]
        self.gpt = table["label"] == "gpt"
        self.last = table.get("lastlba", 0)
        found = {int(re.split(r"[^0-9]", one["node"])[-1]): one for one in table.get("partitions", [])}
        if any(one["type"] in ("5", "f", "85") for one in found.values()):
            return {}  # logical partitions have their tables all over the disk
        return dict(sorted(found.items(), key=lambda pair: pair[1]["start"]))

    def extents(self) -> Extents:
        """Return start and length, in the kernel's sectors of 512 bytes, of the partitions to work on, in order."""
        unit = self.unit
        shown = {number: one for number, one in self.entries.items() if self.esp or one["type"] not in self.EFI}
        return {number: (one["start"] * unit, one["size"] * unit) for number, one in shown.items()}

    def show(self) -> None:
        """Give the disk the table without what makes it boot, and give it to the kernel."""
        script = run("sfdisk", "--dump", self.device).splitlines()
        if self.esp:
            script = [line.replace("type=" + self.EFI[0], "type=" + self.PLAIN) for line in script]
        kept = [line for line in script if not any(f"type={kind}" in line.split(", ") for kind in self.EFI)]
        run(*self.SFDISK, "--wipe", "never", self.disk.path, stdin="\n".join(kept) + "\n")
        self.disk.believe(self.extents())

    def grow(self, number: int) -> None:
        """Give a partition, which must be the last one, the rest of the disk."""
        if self.gpt:
            run(*self.SFDISK, "--relocate", "gpt-bak-std", self.device)
        one = self.entries[number]
        if self.disk.size - (one["start"] + one["size"]) * self.disk.sector > 2 * EDGE:
            run(*self.SFDISK, "-N", str(number), self.device, stdin=", +\n")
        self.entries = self._read()
        self.back = self.disk.size - (self.last + 1) * self.disk.sector if self.gpt else 0

    def partitions(self, work: Path, esp: bool = False) -> list[Partition]:
        """Return the partitions to work on, known to the kernel, in the order of their place.

        With `esp` the EFI system partition is one of them, under the name of a plain one.
        """
        self.esp = esp
        if self.entries:
            self.show()
        return [Partition(number, self.disk, self.entries[number], work) for number in self.extents()]

    def take_boot_code(self) -> None:
        """Take over the boot code that a boot loader wrote onto the disk meanwhile."""
        with open(self.disk.path, "rb") as source, open(self.device, "r+b") as target:
            target.write(source.read(440))

    def commit(self) -> None:
        """Write the table onto the disk, its beginning last, and read it back: from now on the disk boots."""
        data = []
        with open(self.device, "rb") as stream:
            for start, count in ((self.disk.size - self.back, self.back), (0, self.front)):
                stream.seek(start)
                data.append((start, stream.read(count)))
        with self.disk.exclusive() as fd:
            for start, piece in data:
                Writer(fd, self.disk.size).put(memoryview(piece), start)
                os.fsync(fd)
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, self.BLKFLSBUF, 0)
            if any(os.pread(fd, len(piece), start) != piece for start, piece in data):
                raise Refused(f"root device {self.disk.path}: it does not give back what was written; it is faulty")
