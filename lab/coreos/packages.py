# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages unpacked into one tree, without installing anything and without root."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab.images import ImageError, cache
from lab.images.recipe import SUITE
from lab.mirror.archive import Archive, field

_KERNEL = "linux-image-cloud-amd64"  # small, and has every driver of QEMU's own devices
_PACKAGES = (_KERNEL, "busybox-static", "isolinux", "syslinux-common")


def unpack(folder: Path) -> Path:
    """The tree of the packages, in ``folder``."""
    tree, debs = folder / "packages", folder / "debs"
    debs.mkdir(parents=True)
    with cache.locked("mirror"):
        archive = Archive(SUITE)
        found = archive.download(_PACKAGES, debs)
        (meta,) = (deb for deb in found if deb.name.startswith(_KERNEL))
        kernel = re.match(r"linux-image-[a-z0-9.+-]+", field(meta, "Depends"))
        if kernel is None:
            raise ImageError(f"package {_KERNEL} of {SUITE} depends on no kernel")
        meta.unlink()
        found = archive.download((kernel[0],), debs)
    for deb in found:
        subprocess.run(["dpkg-deb", "--extract", str(deb), str(tree)], check=True)
    return tree
