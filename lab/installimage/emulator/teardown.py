# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in the way of an installation is stopped: mounts, swap, volume groups, arrays; then old tables are erased."""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import host
from .screen import Failed, debug, say


def stop_everything() -> bool:
    """Unmount all drives and stop LVM and arrays of every system; False when something stays in use."""
    if not _unmount_all():
        return False
    host.run("swapoff", "--all", check=False)
    if not host.in_container():
        for group in _words("vgs", "--noheadings", "--options", "vg_name"):
            host.run("vgchange", "--activate", "n", group, check=False)
        host.run("dmsetup", "remove_all", check=False)
        for line in host.run("mdadm", "--detail", "--scan", check=False).splitlines():
            host.run("mdadm", "--stop", line.split()[1], check=False)
    return True


def _unmount_all() -> bool:
    """The mounted drives of this machine; a container also sees mounts of its host, under numbers it lacks."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        number, point, source = fields[2], _plain(fields[4]), _plain(fields[fields.index("-") + 2])
        ours = host.block_number(source) == number or (_is_btrfs(fields) and not host.in_container())
        if source.startswith("/dev/") and ours:
            points.append(point)
    for point in reversed(points):
        debug(f"unmounting {point}")
        host.run("umount", point, check=False)
    still = [point for point in points if os.path.ismount(point)]
    if still:
        say("ERROR unmounting device(s):")
        say(" ".join(still))
        say("Cannot continue, device(s) seem to be in use.")
        say("Please unmount used devices manually or reboot the rescuesystem and retry.")
    return not still


def _plain(word: str) -> str:
    """A word of mountinfo as it was before the kernel escaped it."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _is_btrfs(fields: list[str]) -> bool:
    """btrfs numbers its mounts as it likes."""
    return fields[fields.index("-") + 1] == "btrfs"


def delete_partitions(drives: list[str]) -> None:
    """Erase the partition tables and the boot code of drives, and the superblocks of arrays they were part of.

    udev holds still meanwhile: each write to a member would let it put the array together again.
    """
    with host.udev_still():
        if not stop_everything():
            raise Failed("in use")
        for drive in drives:
            _erase(drive)
    host.settle()


def _erase(drive: str) -> None:
    if not host.in_container():
        # The partitions first: they are gone with the table.
        for node in (*(host.partition_node(drive, number) for number in host.partitions(drive)), drive):
            host.run("mdadm", "--zero-superblock", node, check=False)
            host.run("wipefs", "--all", "--force", node, check=False)
    host.run("sgdisk", "--zap-all", drive, check=False)
    try:
        with open(drive, "r+b", buffering=0) as disk:
            for _mebibyte in range(10):
                disk.write(bytes(1 << 20))
            os.fsync(disk.fileno())
    except OSError as error:
        debug(f"{drive}: {error}")
        raise Failed("erase") from error
    host.sync_partitions(drive, {})


def remove_volume_groups(preserve: str) -> None:
    """Remove ALL volume groups of the machine but those whose name matches, also on drives that are not used."""
    for group in _words("vgs", "--noheadings", "--options", "vg_name"):
        if preserve and re.search(preserve, group):
            debug(f"Not removing VG {group}")
            continue
        host.run("lvremove", "--force", group, check=False)
        host.run("vgremove", "--force", group, check=False)
    for line in host.run("pvs", "--noheadings", "--options", "pv_name,vg_name", check=False).splitlines():
        volume, *group_name = line.split()
        if not (preserve and re.search(preserve, group_name[0] if group_name else "")):
            host.run("pvremove", "--force", "--force", "--yes", volume, check=False)


def _words(*command: str) -> list[str]:
    return host.run(*command, check=False).split()
