# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live image like CoreOS's, small and bootable: its layout is the real one, its content is busybox.

``ensure()`` returns it, building it first from Debian packages (some 20 s, no root needed) when there is none for the
present recipe. ``boot.boot()`` boots any image made of it in QEMU and returns what its initramfs reported. On the
command line: ``python -m lab.coreos build`` and ``python -m lab.coreos boot``.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.cache import Progress, quiet
from lab.errors import ImageError

from .live_image import ARGUMENTS, FILES, SOURCES, build

__all__ = ["LiveImage", "ensure"]

_INDEX = "coreos.json"  # not the name that `lab.images` looks for; its time of change is the time of the last use


@dataclass(frozen=True)
class LiveImage:
    """The built files, and what a test needs to check images made of them."""

    folder: Path
    iso: Path
    kernel: Path
    initramfs: Path
    rootfs: Path
    busybox: Path
    arguments: str  # the kernel arguments it is published with
    kernel_version: str
    minimal_sha256: str  # of the minimal ISO, before anything was changed in it


def ensure(progress: Progress = quiet) -> LiveImage:
    """The live image of the present recipe, built when it is missing."""

    def timed(partial: Path) -> None:
        started = time.monotonic()
        (partial / _INDEX).write_text(json.dumps(build(partial, progress)))
        size = _load(partial).iso.stat().st_size
        progress(f"coreos: built in {time.monotonic() - started:.0f} s, {size / 2**20:.0f} MiB")

    return _load(cache.once(cache.images() / f"coreos-{_digest()}", timed, "coreos", _INDEX, progress=progress))


def _load(folder: Path) -> LiveImage:
    try:
        facts = json.loads((folder / _INDEX).read_text())
    except (OSError, ValueError) as error:
        raise ImageError(f"the live image in {folder} is damaged ({error}); remove this folder") from error
    files = {name: folder / file for name, file in FILES.items()}
    return LiveImage(**{"folder": folder, "arguments": ARGUMENTS, **files, **facts})


def _digest() -> str:
    """Changes whenever a file that decides the content does, the module that builds it among them."""
    here = Path(__file__).parent
    total = hashlib.sha256()
    for path in [here / "live_image.py", *sorted(path for path in SOURCES.rglob("*") if path.is_file())]:
        total.update(f"{path.relative_to(here)}\0{path.stat().st_mode & 0o111:o}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[: cache.DIGITS]
