# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the lab's own programs in Go, with packages that Debian's sources of Kubernetes bring (a minute)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from . import go
from .errors import ClusterError
from .sources import Apt

_VERSION = "1.20.2"  # its runtime interface is of use, not its age
_TREE = Path("src/k8s.io/kubernetes")


def build(sources: Path, folder: Path, progress: Callable[[str], None]) -> None:
    """Build the programs of ours in ``sources`` into ``folder``."""
    progress("kubernetes: building the lab's crictl and pause")
    work = folder / "work"
    work.mkdir()
    vendor = _source(Apt(work / "apt"), work / "go") / "vendor"
    tree = work / "go/src/kubenode"
    shutil.copytree(sources, tree)
    (tree / "vendor").symlink_to(vendor)
    names = sorted(path.name for path in sources.iterdir())
    command = ("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{folder}/", *(f"./{name}" for name in names))
    go.run(work / "go", tree, *command, log=work / "log")
    go.discard(work)


def _source(apt: Apt, gopath: Path) -> Path:
    """Unpack Debian's source package in a GOPATH; returns its folder."""
    tree = gopath / _TREE
    tree.parent.mkdir(parents=True)
    version = apt.source("kubernetes", tree)
    if _VERSION not in version:
        raise ClusterError(f"Debian's source package kubernetes is {version}, the lab is made for {_VERSION}")
    return tree
