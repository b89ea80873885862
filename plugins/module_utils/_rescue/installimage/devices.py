# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Stable names of disks, turned into what the kernel calls them in this boot."""

from __future__ import annotations

import os
import re
import stat

#: Names that the kernel deals out anew at every boot.
_KERNEL = re.compile(r"(?:/dev/)?(?:[shv]d[a-z]+|nvme\d+n\d+|xvd[a-z]+|md\d+|dm-\d+|mmcblk\d+|loop\d+)\Z")


def is_kernel_name(name):
    """Whether ``name`` may belong to another disk after the next boot."""
    return bool(_KERNEL.match(name))


def resolve(name, dev="/dev"):
    """Path of the whole disk with this by-id name or WWN; raises ValueError when it is not exactly one disk."""
    folder = os.path.join(dev, "disk/by-id")
    bare = name[len("0x") :] if name.lower().startswith("0x") else name
    wanted = {name.lower(), "wwn-" + name.lower(), "wwn-0x" + bare.lower(), "nvme-" + name.lower()}
    try:
        there = sorted(os.listdir(folder))
    except OSError:
        there = []
    found = {os.path.realpath(os.path.join(folder, one)) for one in there if one.lower() in wanted}
    if len(found) > 1:
        raise ValueError("%s is the name of several disks (%s)" % (name, ", ".join(sorted(found))))
    if not found:
        disks = [one for one in there if not re.search(r"-part\d+\Z", one)]
        raise ValueError(
            "there is no disk %s in this machine; it has %s. Ask machine_disks for its disks"
            % (name, ", ".join(disks[:20]) or "none with a stable name")
        )
    path = found.pop()
    if not stat.S_ISBLK(os.stat(path).st_mode):
        raise ValueError("%s leads to %s, which is no block device" % (name, path))
    return path
