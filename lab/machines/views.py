# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the views of all containers of one lab are kept: in a file system of the lab's own, whose source has no path.

Guests see the source of what is mounted into them, and the real installimage unmounts whatever comes from a path.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

from . import sysfs, trees
from .host import run, unmount


class Views:
    """A folder in RAM: one of each machine (see `view`), and the two kinds of /sys/class that guests see."""

    def __init__(self, folder: Path) -> None:
        """Use `Views.open`."""
        self.folder = folder
        self.classes = folder / "classes"
        self.rescue_classes = folder / "rescue-classes"

    @classmethod
    async def open(cls, state_dir: Path, label: str) -> Views:
        """Mount it in the folder of the lab ``label``; `discard` takes it away."""
        views = cls(_folder(state_dir))
        views.folder.mkdir()
        await run("mount", "-t", "tmpfs", "-o", "mode=0755", f"views-{label}", str(views.folder))
        await asyncio.to_thread(trees.fill, views.classes, sysfs.classes("virtual"))
        await asyncio.to_thread(trees.fill, views.rescue_classes, sysfs.classes("lab"))
        return views


async def discard(state_dir: Path) -> None:
    """Take the views of a lab away, also those that a dead lab left mounted."""
    folder = _folder(state_dir)
    await unmount(folder)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _folder(state_dir: Path) -> Path:
    return state_dir / "views"
