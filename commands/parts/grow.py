# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets a file system fill its partition."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands.parts.mounts import mounted
from commands.parts.partition import Partition
from commands.parts.tools import run


def grow_filesystem(partition: Partition, work: Path, say) -> None:
    """Let the file system fill its partition."""
    if partition.fs.startswith("ext"):
        run("e2fsck", "-fp", partition.node, accept=(0, 1, 2))
        run("resize2fs", partition.node)
        return
    tool = {"xfs": ("xfs_growfs",), "btrfs": ("btrfs", "filesystem", "resize", "max")}[partition.fs]
    if shutil.which(tool[0]) is None:
        say("%s keeps its size: %s is missing in this rescue" % (partition, tool[0]))
        return
    with mounted(partition, work / "root") as top:
        run(*tool, str(top))
