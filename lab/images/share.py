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
from .errors import ImageError

#: The folder of another installimage, such as a checkout of Hetzner's, that rescues get in place of the stand-in.
OWN = "KUBENODE_LAB_INSTALLIMAGE"
_PROGRAM = Path(__file__).parents[1] / "installimage"


def build_share(tarball: Path) -> Path:
    """A folder with ``install/`` and ``images/`` (``tarball``).

    ``install/`` is the lab's stand-in, as it is in this checkout, or the folder that the environment names.
    """
    program = Path(os.environ.get(OWN) or _PROGRAM)
    sources = _files(program)
    digest = hashlib.sha256(os.fsencode(tarball))
    for source in sources:
        digest.update(f"\0{source.relative_to(program)}\0".encode() + source.read_bytes())
    folder = cache.images() / f"share-{digest.hexdigest()[:16]}"
    with cache.locked("share"):
        if not folder.exists():
            with cache.new_folder(folder) as partial:
                (partial / "images").mkdir()
                for source in sources:
                    copy = partial / "install" / source.relative_to(program)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, copy)
                os.link(tarball, partial / "images" / tarball.name)
            _forget_others(keep=folder)
        os.utime(folder)
    return folder


def _files(program: Path) -> list[Path]:
    """What a rescue needs of an installimage, sorted."""
    if program == _PROGRAM:
        return sorted([program / "installimage", *(program / "standin").glob("*.py")])
    if not os.access(program / "installimage", os.X_OK):
        raise ImageError(f"{OWN}: there is no program {program}/installimage")
    found = (path for path in program.rglob("*") if path.is_file() and ".git" not in path.relative_to(program).parts)
    return sorted(found)


def _forget_others(keep: Path) -> None:
    """Remove shares that nobody asked for in the last days."""
    for folder in cache.images().glob("share-*"):
        if folder != keep and time.time() - folder.stat().st_mtime > cache.KEPT_SECONDS:
            cache.remove(folder)
