# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the root file system of the new system."""

from __future__ import annotations

import os
import re
from pathlib import Path

from commands.parts.chroot import inside
from commands.parts.errors import Refused
from commands.parts.mounts import mounted
from commands.parts.partition import Partition


def look_around() -> dict:
    """Say what the file system at / is; runs inside it."""
    releases = [Path(name) for name in ("/etc/os-release", "/usr/lib/os-release") if os.path.lexists(name)]
    inits = ("/sbin/init", "/usr/sbin/init", "/usr/lib/systemd/systemd", "/lib/systemd/systemd", "/init")
    text = "".join(path.read_text(errors="replace") for path in releases[:1] if path.is_file())
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.M)
    fstab = Path("/etc/fstab")
    return {
        "root": bool(releases) and any(os.path.lexists(path) for path in inits),
        "name": name.group(1) if name else "unknown system",
        "cloud_init": any(Path(folder, "cloud-init").exists() for folder in ("/usr/bin", "/usr/local/bin", "/bin")),
        "switched_off": Path("/etc/cloud/cloud-init.disabled").exists(),
        "fstab": fstab.read_text(errors="replace") if fstab.is_file() else "",
    }


class Root:
    """The root file system of the new system: a partition, and for btrfs a folder on it."""

    KINDS = ("ext2", "ext3", "ext4", "xfs", "btrfs")

    def __init__(self, partition: Partition, folder: str, facts: dict):
        self.partition, self.folder, self.facts = partition, folder, facts

    @classmethod
    def find(cls, partitions: list, work: Path, say) -> list:
        """Look into every file system for an os-release and an init."""
        found = []
        for partition in [one for one in partitions if one.fs in cls.KINDS]:
            try:
                with mounted(partition, work / "root", "ro") as top:
                    found += cls._look(partition, top)
            except Refused as error:
                say("%s is left alone: %s" % (partition, error))
        return found

    @classmethod
    def _look(cls, partition: Partition, top: Path) -> list:
        facts = inside(top, look_around)
        if facts["root"]:
            return [cls(partition, ".", facts)]
        below = sorted(path.name for path in top.iterdir() if path.is_dir() and not path.is_symlink())
        seen = [(name, inside(top / name, look_around)) for name in below if partition.fs == "btrfs"]
        return [cls(partition, name, facts) for name, facts in seen if facts["root"]]
