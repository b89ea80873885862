# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of long builds: made once, used as long as somebody asks for them, removed afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.images import cache

from . import go

DIGITS = 16  # of the digest at the end of a folder's name
_DONE = "complete"  # its time of change is the time of the last use


def once(
    folder: Path,
    build: Callable[[Path], None],
    progress: Callable[[str], None],
    programs: Sequence[str] = (),
) -> None:
    """Build ``folder`` (NAME-DIGEST) by ``programs``, unless it is there; one process builds, the others wait."""
    done = folder / _DONE
    if not done.exists():
        with cache.locked("kubernetes"):
            if not done.exists():
                go.require_programs(programs)
                started = time.monotonic()
                _forget_unused(folder)
                with cache.new_folder(folder) as partial:
                    build(partial)
                    (partial / _DONE).touch()
                progress(f"{folder.name}: built in {time.monotonic() - started:.0f} s")
    os.utime(done)


def _forget_unused(folder: Path) -> None:
    """Remove what killed builds left, and older builds that nobody asked for in the last days (under the lock)."""
    name = folder.name.rpartition("-")[0]
    for partial in folder.parent.glob(f".{name}-{'?' * DIGITS}.part"):
        cache.remove(partial)
    for old in folder.parent.glob(f"{name}-{'?' * DIGITS}"):
        if time.time() - (old / _DONE).stat().st_mtime > cache.KEPT_SECONDS:
            cache.remove(old)
