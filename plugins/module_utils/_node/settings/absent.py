# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Removing files, links and, in a few places only, whole trees."""

from __future__ import annotations

import os
import shutil
import stat

from ..info import parse
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
    found = [parse.unescape(line.split()[4]) for line in (mountinfo or "").splitlines() if len(line.split()) > 4]
    return sorted((mount for mount in found if mount.startswith(path + "/")), key=lambda name: -name.count("/"))


def is_mount(mountinfo, path):
    """Whether something is mounted right there. Pure."""
    return any(parse.unescape(line.split()[4]) == path for line in (mountinfo or "").splitlines() if line.strip())


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
    if not is_mount(host.text("/proc/self/mountinfo"), real):
        shutil.rmtree(real)
        return
    for name in os.listdir(real):
        inner = os.path.join(real, name)
        if os.path.isdir(inner) and not os.path.islink(inner):
            shutil.rmtree(inner)
        else:
            os.unlink(inner)
