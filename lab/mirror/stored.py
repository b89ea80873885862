# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small files of the mirror that are made from what other parts of the lab hand over, kept by their content."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from lab.images import cache


def store(name: str, content: bytes, mode: int = 0o644) -> Path:
    """A file called ``name`` with this content; the same one for the same content."""
    folder = cache.root() / "mirror" / "stored" / hashlib.sha256(content).hexdigest()[:16]
    target = folder / name
    if target.exists():
        os.utime(folder)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(content)
    os.chmod(file.name, mode)
    os.replace(file.name, target)
    _forget_old(folder.parent)
    return target


def _forget_old(folder: Path) -> None:
    """Remove what nobody asked for in the last days."""
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > cache.KEPT_SECONDS:
            cache.remove(path)
