# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes file systems that also older systems than the rescue can read."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands.parts.errors import Refused
from commands.parts.tools import run

#: Ways to make each file system, the first one that the rescue's tool knows is taken. Features younger than the kernels
#: and boot loaders of current distributions are left out: a rescue is often newer than the image.
WAYS = {
    "ext4": (
        ("mkfs.ext4", "-q", "-F", "-O", "^orphan_file,^metadata_csum_seed"),
        ("mkfs.ext4", "-q", "-F", "-O", "^metadata_csum_seed"),
    ),
    "xfs": (
        ("mkfs.xfs", "-q", "-f", "-m", "bigtime=0,inobtcount=0", "-i", "nrext64=0"),
        ("mkfs.xfs", "-q", "-f", "-m", "bigtime=0,inobtcount=0"),
        ("mkfs.xfs", "-q", "-f"),
    ),
    "btrfs": (("mkfs.btrfs", "-q", "-f"),),
    "vfat": (("mkfs.vfat", "-F", "32", "-n", "ESP"),),
    "swap": (("mkswap", "--quiet"), ("mkswap",)),
}


def check_tools(kinds: set) -> None:
    """Refuse to begin without the programs and the kernel for these file systems."""
    for kind in sorted(kinds):
        program = WAYS[kind][0][0]
        if shutil.which(program) is None:
            raise Refused("layout: %s is missing in this rescue" % program)
        if kind != "swap" and not kernel_knows(kind):
            raise Refused("layout: the kernel of this rescue cannot mount %s" % kind)


def kernel_knows(kind: str) -> bool:
    """Whether the kernel mounts a file system, perhaps after it has loaded a module."""

    def known() -> bool:
        return kind in Path("/proc/filesystems").read_text().split()

    if not known() and shutil.which("modprobe"):
        run("modprobe", "--quiet", kind, accept=(0, 1))
    return known()


def make_filesystem(kind: str, node: str, *options: str) -> None:
    """Make a file system on a partition."""
    failure = None
    for way in WAYS[kind]:
        try:
            run(*way, *options, node)
            return
        except Refused as error:
            failure = failure or error
    if failure:
        raise failure
