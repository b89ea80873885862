# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One partition of the written disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from commands.parts.disk import Disk, device_number
from commands.parts.tools import run


class Partition:
    """One partition of the written disk and what is on it."""

    def __init__(self, number: int, disk: Disk, entry: dict, work: Path):
        self.number, self.disk = number, disk
        self.node = self._node(disk.partition_device(number), work)
        self.partuuid = entry.get("uuid", "").lower()
        self.partlabel = entry.get("name", "")
        self.probe()

    def probe(self) -> None:
        """Look at what is on it."""
        probe = run("blkid", "-p", "-o", "export", self.node, accept=(0, 2, 8))
        tags = dict(line.split("=", 1) for line in probe.splitlines() if "=" in line)
        self.fs = tags.get("TYPE", "")
        self.label = tags.get("LABEL", "")
        self.uuid = tags.get("UUID", "")
        self.names = {"UUID=" + self.uuid, "LABEL=" + self.label}
        self.names |= {"PARTUUID=" + self.partuuid, "PARTLABEL=" + self.partlabel}

    def _node(self, number: str, work: Path) -> str:
        for name in ("%s%d" % (self.disk.path, self.number), "%sp%d" % (self.disk.path, self.number)):
            if device_number(name) == number:
                return name
        node = work / ("node-%d-%s" % (self.number, number.replace(":", "-")))  # no udev yet, or none at all
        if not node.exists():
            major, minor = number.split(":")
            os.mknod(str(node), stat.S_IFBLK | 0o600, os.makedev(int(major), int(minor)))
        return str(node)

    def __str__(self) -> str:
        return "partition %d (%s)" % (self.number, self.fs or "no file system")
