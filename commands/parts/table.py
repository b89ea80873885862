# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The partition table, kept back until everything else is done."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from pathlib import Path

from commands.parts.disk import Disk
from commands.parts.errors import Refused
from commands.parts.partition import Partition
from commands.parts.tools import run
from commands.parts.writer import EDGE, Writer


class Table:
    """The partition table of the image, in a file as large as the disk until everything else is done.

    On the disk it would make half an installation bootable. In a file, sfdisk reads and changes it just as well. What
    the disk gets meanwhile is a table that no firmware boots from: without boot code, without EFI system partitions.
    Kernel, udev and everybody else who reads it find the partitions that the work is about.
    """

    BLKFLSBUF = 0x1261
    EFI = ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "ef")
    PLAIN = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
    SFDISK = ("sfdisk", "--quiet", "--force", "--no-reread", "--no-tell-kernel")

    def __init__(self, disk: Disk, work: Path, head: bytes, tail_start: int, tail: bytes, script: str = ""):
        """Take the ends of a disk, see Writer.finish(); with a script for sfdisk make a new table."""
        self.disk, self.path, self.esp = disk, work / "table", False
        with self.path.open("wb") as stream:
            stream.truncate(disk.size)
            stream.write(head.rstrip(b"\0"))
            stream.seek(tail_start)
            stream.write(tail.rstrip(b"\0"))
        self.device = str(self.path)
        if disk.sector != 512:  # sfdisk believes a file to have sectors of 512 bytes
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
        """Give the file free."""
        if self.device != str(self.path):
            run("losetup", "--detach", self.device)

    def _read(self) -> dict:
        table = json.loads(run("sfdisk", "--json", self.device))["partitiontable"]
        self.gpt = table["label"] == "gpt"
        self.last = table.get("lastlba", 0)
        found = {int(re.split(r"[^0-9]", one["node"])[-1]): one for one in table.get("partitions", [])}
        if any(one["type"] in ("5", "f", "85") for one in found.values()):
            return {}  # logical partitions have their tables all over the disk
        return dict(sorted(found.items(), key=lambda pair: pair[1]["start"]))

    def extents(self) -> dict:
        """Return start and length, in the kernel's sectors of 512 bytes, of the partitions to work on, in order."""
        unit = self.unit
        shown = {number: one for number, one in self.entries.items() if self.esp or one["type"] not in self.EFI}
        return {number: (one["start"] * unit, one["size"] * unit) for number, one in shown.items()}

    def show(self) -> None:
        """Give the disk the table without what makes it boot, and make the kernel believe it."""
        script = run("sfdisk", "--dump", self.device).splitlines()
        if self.esp:
            script = [line.replace("type=" + self.EFI[0], "type=" + self.PLAIN) for line in script]
        kept = [line for line in script if not any("type=%s" % kind in line.split(", ") for kind in self.EFI)]
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

    def partitions(self, work: Path, esp: bool = False) -> list:
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
                raise Refused("root device %s: it does not give back what was written; it is faulty" % self.disk.path)
