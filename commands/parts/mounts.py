# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts that vanish with the program."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

from commands.parts.errors import Refused
from commands.parts.libc import LIBC
from commands.parts.partition import Partition
from commands.parts.tools import patience, run


def private_mounts() -> None:
    """Leave the mount namespace of the rescue: no mount of this program outlives it or holds what others unmount."""
    if LIBC.unshare(0x00020000) == 0:  # CLONE_NEWNS
        LIBC.mount(b"none", b"/", None, ctypes.c_ulong(0x84000), None)  # MS_REC | MS_SLAVE


@contextlib.contextmanager
def workplace():
    """Give a private folder below /dev, the one place sure to allow device nodes; empty it afterwards."""
    work = Path(tempfile.mkdtemp(prefix=".kubenode-%d-" % os.getpid(), dir="/dev"))
    run("mount", "-t", "tmpfs", "-o", "mode=0700", "kubenode", str(work))  # /dev itself may be small
    try:
        yield work
    finally:
        unmount(work)
        work.rmdir()


@contextlib.contextmanager
def mounted(partition: Partition, where: Path, options: str = ""):
    """Mount a partition and unmount it again, with everything written."""
    where.mkdir(exist_ok=True)
    wanted = ",".join(filter(None, ["nouuid" if partition.fs == "xfs" else "", options or "rw"]))
    run("mount", "-t", partition.fs, "-o", wanted, partition.node, str(where))
    try:
        yield where
    finally:
        unmount(where)


def unmount(where: Path) -> None:
    """Unmount, with everything written; wait for whoever still looks at it."""
    for _pause in patience():
        if subprocess.run(["umount", str(where)], capture_output=True, check=False).returncode == 0:
            return
    raise Refused("%s cannot be unmounted" % where)
