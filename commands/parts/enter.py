# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs of the new system in it, with nothing of the rescue in sight but the disk."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path

from commands.parts.disk import Disk
from commands.parts.errors import Refused
from commands.parts.tools import run

NODES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "GRUB_DISABLE_OS_PROBER": "true",
}


@contextlib.contextmanager
def entered(top: Path, disk: Disk, partitions: list):
    """Give a mounted root a /dev of its own, /proc, /sys, /run and /tmp; yield a function that runs its programs."""
    with contextlib.ExitStack() as stack:
        for name, command in (
            ("dev", ("-t", "tmpfs", "-o", "mode=0755,nosuid", "dev")),
            ("proc", ("-t", "proc", "proc")),
            ("sys", ("--rbind", "/sys")),
            ("run", ("-t", "tmpfs", "-o", "mode=0755,nosuid,nodev", "run")),
            ("tmp", ("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "tmp")),
        ):
            folder = top / name
            if folder.is_symlink():
                raise Refused("new root file system: /%s is a link" % name)
            folder.mkdir(exist_ok=True)
            run("mount", *command, str(folder))
            stack.callback(leave, folder)
        furnish(top / "dev", disk, partitions)
        # how libudev is to read /sys is the rescue's word; nothing else of its environment, which may hold secrets
        kept = {name: value for name, value in os.environ.items() if name.startswith("SYSTEMD_")}

        def call(*command: str) -> str:
            done = subprocess.run(
                ("chroot", str(top), *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False, env={**kept, **ENVIRONMENT},
            )  # fmt: skip
            if done.returncode:
                text = "; ".join(done.stdout.strip().splitlines()[-3:])
                raise Refused("%s in the new system ended with exit code %d: %s" % (command[0], done.returncode, text))
            return done.stdout

        yield call


def leave(folder: Path) -> None:
    """Take a mount away, also one that somebody still looks at."""
    run("umount", "--recursive", "--lazy", str(folder))


def furnish(dev: Path, disk: Disk, partitions: list) -> None:
    """Fill a /dev: the usual nodes, the disk, its partitions, and the links by which GRUB knows them."""
    for name, major, minor in NODES:
        with contextlib.suppress(PermissionError):  # a rescue in a container; /dev/null is always there
            os.mknod(str(dev / name), stat.S_IFCHR | 0o600, os.makedev(major, minor))
            (dev / name).chmod(0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target)
    (dev / "shm").mkdir()
    nodes = {disk.path: Path(disk.path).stat().st_rdev}
    for partition in partitions:
        nodes[partition.node] = Path(partition.node).stat().st_rdev
        for folder, tag in (("by-uuid", partition.uuid), ("by-partuuid", partition.partuuid)):
            if tag:
                link = dev / "disk" / folder / tag
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(partition.node)
    for path, number in nodes.items():
        node = dev / Path(path).relative_to("/dev")
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(str(node), stat.S_IFBLK | 0o600, number)
