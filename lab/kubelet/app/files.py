# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes, mode: int) -> None:
    """Write by rename; parents are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(".%s.%d.tmp" % (path.name, os.getpid()))
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)


def link(path: Path, target: str) -> None:
    """Point a symbolic link somewhere else, without a moment in which it is missing."""
    beside = path.with_name(".%s.%d.tmp" % (path.name, os.getpid()))
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(path)


def text(path: str, default: str = "") -> str:
    """Content of a small file, stripped; ``default`` when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return default
