# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Removing files, links and, in a few places only, whole trees."""

from __future__ import annotations

import os
import stat

from ..._common import mounts, trees
from ..machine import files
from .files import describe, tail
from .plan import SettingError, Step, same

#: Where a tree may be removed; /run itself, unlike the others, may not.
TREES = ("/etc/kubernetes", "/var/lib/kubelet", "/etc/cni", "/var/lib/cni", "/etc/containerd")
_BELOW = ("/run",)


def tree_allowed(path):
    """Whether a tree may be removed."""
    inside = any(path == place or path.startswith(place + "/") for place in TREES)
    return inside or any(path.startswith(place + "/") for place in _BELOW)


def mounts_below(mountinfo, path):
    """Mount points strictly below a path, the deepest first. Pure."""
    found = [mount.point for mount in mounts.parse(mountinfo) if mount.point.startswith(path + "/")]
    return sorted(found, key=lambda name: -name.count("/"))


def is_mount(mountinfo, path):
    """Whether something is mounted right there. Pure."""
    return any(mount.point == path for mount in mounts.parse(mountinfo))


def plan_absent(context, setting):
    """Nothing at this path."""
    host, path = context.host, setting["path"]
    status = host.status(path)
    if status is None:
        return same("absent")
    is_tree = stat.S_ISDIR(status.st_mode)
    full = is_tree and bool(host.names(path))
    if full and not setting.get("recursive"):
        raise SettingError("%s is a directory with content; it is removed only with recursive" % path)
    mounted = is_tree and is_mount(host.text("/proc/self/mountinfo"), host.path(path))
    if mounted and not full:
        return same("an empty mount point")
    if full and os.path.realpath(host.path(path)) != os.path.join(os.path.realpath(host.root), path.lstrip("/")):
        raise SettingError("%s lies behind a link; a tree is removed only at its real place" % path)
    context.touches(path, False)

    def act():
        if not is_tree:
            os.unlink(host.path(path))
        elif full:
            _remove_tree(host, path)
        else:
            os.rmdir(host.path(path))
        context.wrote(path)
        files.sync_folder(os.path.dirname(host.path(path)))

    after = "an empty mount point" if mounted else "absent"
    return Step(True, describe(status), after, "exists", act)


def _remove_tree(host, path):
    """Empty and remove a directory; what is mounted below is unmounted, so that no other file system is emptied."""
    real = host.path(path)
    for mount in mounts_below(host.text("/proc/self/mountinfo"), real):
        done = host.run(["umount", "--", mount], 60)
        if done.code and mount in mounts_below(host.text("/proc/self/mountinfo"), real):
            raise SettingError("%s cannot be unmounted: %s" % (mount, tail(done)))
    left = mounts_below(host.text("/proc/self/mountinfo"), real)
    if left:
        raise SettingError("%s is still mounted" % left[0])
    mounted = is_mount(host.text("/proc/self/mountinfo"), real)
    left = trees.empty(real) if mounted else trees.remove(real)
    if left:
        raise SettingError("%s is mounted: what is in it was left, and %s is not removed" % (left[0], path))
