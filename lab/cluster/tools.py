# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the lab's own programs in Go, with the packages that the source package of Kubernetes brings (a minute)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from . import go, kubernetes
from .sources import Apt


def build(sources: Path, folder: Path, progress: Callable[[str], None]) -> None:
    """Build the programs of ours in ``sources`` into ``folder``."""
    progress("kubernetes: building the lab's crictl and pause")
    work = folder / "work"
    work.mkdir()
    vendor = kubernetes.source(Apt(work / "apt"), work / "go") / "vendor"
    tree = work / "go/src/kubenode"
    shutil.copytree(sources, tree)
    (tree / "vendor").symlink_to(vendor)
    names = sorted(path.name for path in sources.iterdir())
    command = ("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{folder}/", *(f"./{name}" for name in names))
    go.run(work / "go", tree, *command, log=work / "log")
    go.discard(work)
