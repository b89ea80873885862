# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes trees of small files and links so that whoever reads them at the same moment never meets half of one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .sysfs import Link, Tree


class Writer:
    """Puts files, links and whole folders in place by rename; ``spare`` is on the same file system, unseen."""

    def __init__(self, spare: Path) -> None:
        """``spare`` is made when it is not there."""
        self._spare = spare
        spare.mkdir(parents=True, exist_ok=True)
        self._count = 0

    def file(self, path: Path, content: str | Link) -> None:
        """A file (its content ends with a line feed) or a link."""
        new = self._new()
        if isinstance(content, Link):
            new.symlink_to(content.target)
        else:
            new.write_text(content if content.endswith("\n") else content + "\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        new.replace(path)

    def folder(self, path: Path, tree: Tree) -> None:
        """A whole folder, where there is none yet."""
        new = self._new()
        fill(new, tree)
        path.parent.mkdir(parents=True, exist_ok=True)
        new.rename(path)

    def remove(self, path: Path) -> None:
        """Take a file, link or folder away; nothing happens when it is not there."""
        gone = self._new()
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        if gone.is_dir() and not gone.is_symlink():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()

    def _new(self) -> Path:
        self._count += 1
        return self._spare / str(self._count)


def fill(folder: Path, tree: Tree) -> None:
    """Make ``folder`` and what the tree says inside."""
    folder.mkdir(parents=True)
    made = {""}
    for name, content in tree.items():
        parent = name if content is None else os.path.dirname(name)
        if parent not in made:
            (folder / parent).mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if isinstance(content, Link):
            (folder / name).symlink_to(content.target)
        elif content is not None:
            (folder / name).write_text(content if content.endswith("\n") else content + "\n")
