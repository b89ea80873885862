# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of the control plane, of a node and of test pods: where they are, built when missing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.cache import Progress, quiet
from lab.errors import ClusterError, Unavailable

from . import go_build, tools
from .go_build import FOR_TOOLS, Recipe, build_recipe
from .kubernetes import (
    CONTAINERD,
    CONTAINERD_PROGRAMS,
    CONTAINERD_RECIPE,
    ETCD,
    KUBERNETES,
    NODE_PROGRAMS,
    OLDEST,
    OLDEST_RECIPE,
    RECIPE,
)  # fmt: skip
from .tools import oci_archive

__all__ = [
    "CONTAINERD", "CONTAINERD_PROGRAMS", "KUBERNETES", "NODE_PROGRAMS", "OLDEST", "PAUSE_TAGS", "Programs", "Tools",
    "ensure", "ensure_containerd", "ensure_node", "ensure_tools",
]  # fmt: skip

PAUSE_TAGS = ("3.10.1", "3.10.2")
_PAUSE = "registry.k8s.io/pause"
_VERSION = b"@KUBENODE-CRICTL-VERSION@--------"  # as in go/crictl/main.go
_SOURCES = Path(__file__).parent / "go"
_TOOLS = Path(__file__).parent / "tools.py"


@dataclass(frozen=True)
class Tools:
    """Our own programs, in Go and static."""

    tools: Path  # their folder

    def crictl(self, version: str) -> bytes:
        """Our crictl (static), which calls itself ``version`` (such as 1.36.0, without v)."""
        text = f"v{version}".encode()
        if len(text) > len(_VERSION):
            raise ValueError(f"version {version!r} is longer than {len(_VERSION) - 1} bytes")
        program = (self.tools / "crictl").read_bytes()
        if program.count(_VERSION) != 1:
            raise ClusterError("the built crictl does not have its version mark exactly once; see go/crictl/main.go")
        return program.replace(_VERSION, text.ljust(len(_VERSION), b"\0"))

    def pause(self, tag: str = PAUSE_TAGS[-1], name: str = _PAUSE) -> bytes:
        """An OCI archive of the image ``name:tag``: it waits; as a pod's image it takes "say TEXT…" and "exit CODE"."""
        return oci_archive((self.tools / "pause").read_bytes(), "pause", f"{name}:{tag}")


@dataclass(frozen=True)
class Programs(Tools):
    """Built programs, all static."""

    kubernetes: Path  # the folder of the programs of Kubernetes
    etcd: Path

    @property
    def kubectl(self) -> Path:
        """kubectl of the same release."""
        return self.kubernetes / "kubectl"

    @property
    def kubeadm(self) -> Path:
        """kubeadm of the same release."""
        return self.kubernetes / "kubeadm"

    @property
    def kubelet(self) -> Path:
        """kubelet of the same release."""
        return self.kubernetes / "kubelet"


def ensure(progress: Progress = quiet) -> Programs:
    """The programs, built when they are missing: a quarter of an hour on two cores, once, one builder at a time."""
    etcd = _built(ETCD, progress) / "etcd"
    return Programs(ensure_tools(progress).tools, _built(RECIPE, progress), etcd)


def ensure_node(version: str, progress: Progress = quiet) -> Path:
    """The folder of a release's NODE_PROGRAMS, built when missing; there are KUBERNETES and OLDEST (five minutes)."""
    recipes = {KUBERNETES: RECIPE, OLDEST: OLDEST_RECIPE}
    if version not in recipes:
        raise ValueError(f"the lab builds no kubelet {version}, only {', '.join(recipes)}")
    return _built(recipes[version], progress)


def ensure_containerd(progress: Progress = quiet) -> Path:
    """The folder of containerd, its shim and ctr, built when they are missing: three minutes."""
    return _built(CONTAINERD_RECIPE, progress)


def ensure_tools(progress: Progress = quiet) -> Tools:
    """Our own programs alone, built when they are missing: a minute."""
    own = cache.root() / f"kubernetes-tools-{_digest(_TOOLS, *sorted(_SOURCES.rglob('*.go')))}"
    go_build.once(own, lambda folder: tools.build(_SOURCES, folder, progress), progress, FOR_TOOLS)
    return Tools(own)


def _built(recipe: Recipe, progress: Progress) -> Path:
    """The folder of the recipe's result. A run finds out only once that it cannot be built."""
    folder = cache.root() / recipe.folder
    if reason := _missing.get(folder.name):
        raise Unavailable(reason)
    try:
        go_build.once(folder, lambda partial: build_recipe(recipe, partial, progress), progress, ())
    except Unavailable as error:
        _missing[folder.name] = str(error)
        raise
    return folder


_missing: dict[str, str] = {}


def _digest(*files: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.parent.name}/{file.name}\0".encode())
        total.update(file.read_bytes())
    return total.hexdigest()[: cache.DIGITS]
