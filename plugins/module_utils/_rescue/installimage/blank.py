# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Empties the disks of an installation that failed, so that a later run finds them as this one did."""

from __future__ import annotations

import contextlib
import glob
import os
import time

from .rescue import signatures, tree, walk
from .tools import Refused, run

EDGE = 1024 * 1024
#: installimage works below such a directory, and leaves its mounts behind when it is killed.
WORKPLACE = "/installimage."
_TRIES = 5


def blank(drives):
    """Take down what is on ``drives`` and erase it; raises :class:`Refused` with what could not be emptied."""
    problems = []
    for again in range(_TRIES):
        time.sleep(again)
        _release(drives)
        problems = []
        for drive in drives:
            problems += _erase(drive)
        if not problems:
            return
    raise Refused("these could not be emptied again: %s; reset the machine" % "; ".join(problems))


def _release(drives):
    nodes = list(walk(tree(drives)))
    for mount in reversed(_mounts({node["path"] for node in nodes})):
        run(["umount", mount])
    with open("/proc/swaps") as lines:
        swaps = {os.path.realpath(line.split()[0]) for line in list(lines)[1:]}
    for node in nodes:
        if os.path.realpath(node["path"]) in swaps:
            run(["swapoff", node["path"]])
    done = set()
    for node in nodes:  # those on top first
        path, kind = node["path"], node["type"]
        if path in done or kind in ("disk", "loop", "part"):
            continue
        done.add(path)
        run(["wipefs", "--all", "--force", path])
        if kind == "lvm":
            run(["dmsetup", "remove", "--retry", path])
        elif kind == "crypt":
            run(["cryptsetup", "close", node["name"]])
        elif kind.startswith(("raid", "md")):
            run(["mdadm", "--stop", path])
    for folder in glob.glob(WORKPLACE + "*"):
        for inner in ("hdd", "fold", ""):
            path = os.path.join(folder, inner)
            if os.path.isdir(path) and not os.path.ismount(path):
                with contextlib.suppress(OSError):  # what it holds is in memory only
                    os.rmdir(path)


def _erase(drive):
    for node in walk(tree([drive])):
        if node["fstype"] == "linux_raid_member":
            run(["mdadm", "--zero-superblock", "--force", node["path"]])
        if node["type"] == "part":
            run(["wipefs", "--all", "--force", node["path"]])
    code, dummy, err = run(["wipefs", "--all", "--force", drive])
    if code != 0:
        return ["%s: %s" % (drive, err.strip())]
    try:
        with open(drive, "r+b", buffering=0) as disk:
            size = disk.seek(0, os.SEEK_END)
            for place in (0, max(0, size - EDGE)):
                disk.seek(place)
                disk.write(bytes(min(EDGE, size)))
            os.fsync(disk.fileno())
    except OSError as error:
        return ["%s: %s" % (drive, error.strerror)]
    _forget_partitions(drive)
    left = signatures(drive) + [node["path"] for node in tree([drive])[0].get("children") or ()]
    return ["%s still holds %s" % (drive, ", ".join(left))] if left else []


def _forget_partitions(drive):
    run(["blockdev", "--rereadpt", drive])
    for node in tree([drive])[0].get("children") or ():
        number = "/sys/class/block/%s/partition" % node["kname"]
        if os.path.exists(number):
            with open(number) as file:
                run(["delpart", drive, file.read().strip()])
    run(["udevadm", "settle", "--timeout=10"])


def _mounts(paths):
    """Mount points of these devices and below installimage's workplace, in the order of mounting."""
    found = []
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            fields = line.split()
            point = fields[4].replace("\\040", " ")
            source = os.path.realpath(fields[fields.index("-") + 2])
            if source in {os.path.realpath(path) for path in paths} or point.startswith(WORKPLACE):
                found.append(point)
    return found
