# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab needs and changes on its host, said before it happens."""

from __future__ import annotations

import os

from lab.machines import boot_backend, cleanup, nspawn, qemu
from lab.machines.host_commands import PACKAGES, find

from . import cache, images
from .state import State

#: images that a lab of a kind that boots opens, and those of dedicated servers
_IMAGES = ("rescue", "debian")
_DEDICATED_IMAGES = ("tarball",)


def host_changes(kind: str, state: State, *, dedicated: bool = False) -> list[str]:
    """One line each: what ``python -m lab up`` will build and change on this host. Nothing is done or changed here.

    ``kind`` is one of KINDS or ``auto``; ``dedicated``: whether there will be dedicated servers from the start.
    """
    lines = []
    if kind == "auto":
        kind = likely_kind()
        lines.append(f"kind auto: most likely {kind}")
    lines.append(f"keeps its state in {state.folder}")
    if kind == "dry":
        return [*lines, "starts one process that listens on 127.0.0.1 only; kind dry needs no root and boots nothing"]
    wanted = (*_IMAGES, *(_DEDICATED_IMAGES if dedicated else ()))
    missing = [name for name in wanted if not images.is_built(name)]
    packages = missing_packages(kind, building=bool(missing))
    lines.append("installs no Debian package on this host" + (
        f"; it lacks some, run first: apt-get install {' '.join(packages)}" if packages else ""))  # fmt: skip
    if missing:
        lines.append(f"builds {', '.join(missing)} of Debian packages in {cache.images()}: minutes, once")
    present, needed = boot_backend.inotify_instances()
    if present < needed:
        setting = "fs.inotify.max_user_instances"
        lines.append(f"raises {setting} from {present} to {needed}; 'python -m lab purge' puts it back")
    return [
        *lines,
        f"keeps disks of machines in {cleanup.labs_folder()}, on a file system of its own where that is needed",
        "makes a network namespace with a bridge, and on the host the link knlabN with the address 198.18.N.254 "
        "and a route to 2001:db8:N::/48",
        "makes control groups, mounts and loop devices; 'python -m lab down' removes all of this, also after a crash",
    ]


def missing_packages(kind: str, *, building: bool) -> list[str]:
    """Debian packages that this host lacks for machines of ``kind`` (nspawn or qemu) and, ``building``, for images."""
    programs = nspawn.PROGRAMS if kind == "nspawn" else qemu.PROGRAMS
    lacking = {PACKAGES.get(program, program) for program in programs if not find(program)}
    return sorted(lacking | (images.missing_packages() if building else set()))


def likely_kind() -> str:
    """The kind that ``auto`` will most likely choose; only a boot shows whether KVM works, and none is tried here."""
    if os.geteuid() != 0:
        return "dry"
    known = qemu.kvm_known()
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) if known is None else known[0]
    return "qemu" if (usable and find("qemu-system-x86_64")) or not find("systemd-nspawn") else "nspawn"


def build_changes(names: tuple[str, ...]) -> list[str]:
    """What ``python -m lab images build`` will do for these images; nothing for those that are there."""
    missing = ", ".join(name for name in names if not images.is_built(name))
    return [f"builds {missing} of Debian packages in {cache.root()}; installs nothing on this host"] if missing else []
