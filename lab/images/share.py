# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rescue mounts read-only, as the provider's does over NFS: installimage and the images for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

from . import cache

_PROGRAM = Path(__file__).parents[1] / "installimage"


def build_share(tarball: Path) -> Path:
    """A folder with ``install/`` (the lab's stand-in, as it is in this checkout) and ``images/`` (``tarball``)."""
    sources = sorted([_PROGRAM / "installimage", *(_PROGRAM / "standin").glob("*.py")])
    digest = hashlib.sha256(os.fsencode(tarball))
    for source in sources:
        digest.update(f"\0{source.name}\0".encode() + source.read_bytes())
    folder = cache.images() / f"share-{digest.hexdigest()[:16]}"
    with cache.locked("share"):
        if not folder.exists():
            with cache.new_folder(folder) as partial:
                (partial / "install/standin").mkdir(parents=True)
                (partial / "images").mkdir()
                for source in sources:
                    shutil.copy(source, partial / "install" / source.relative_to(_PROGRAM))
                os.link(tarball, partial / "images" / tarball.name)
            _forget_others(keep=folder)
        os.utime(folder)
    return folder


def _forget_others(keep: Path) -> None:
    """Remove shares that nobody asked for in the last days."""
    for folder in cache.images().glob("share-*"):
        if folder != keep and time.time() - folder.stat().st_mtime > cache.KEPT_SECONDS:
            cache.remove(folder)
