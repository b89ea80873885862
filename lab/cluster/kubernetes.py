# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds kube-apiserver, kube-controller-manager and kubelet from Debian's source package.

The digest of this file names the folder of the result: a change here costs every user seven minutes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from . import go
from .errors import ClusterError
from .sources import Apt

KUBERNETES = "1.20.2"
BUILT = ("kube-apiserver", "kube-controller-manager", "kubelet")
_READY = {"etcd": "etcd-server", "kubectl": "kubernetes-client"}  # program → the package it is taken from, as it is
_REFLECT = "github.com/modern-go/reflect2"
_TREE = Path("src/k8s.io/kubernetes")
_STAMPS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def build(folder: Path, progress: Callable[[str], None]) -> None:
    """Fill ``folder`` with the programs (about 7 minutes, 600 MB)."""
    work = folder / "work"
    work.mkdir()
    progress("kubernetes: fetching Debian's source package")
    apt = Apt(work / "apt")
    for program, package in _READY.items():
        apt.package(package, work / package)
        shutil.copy(work / package / "usr/bin" / program, folder / program)
    tree = source(apt, work / "go")
    apt.package("golang-github-modern-go-reflect2-dev", work / "reflect2")
    overlay = _overlay(tree / "vendor" / _REFLECT, work / "reflect2/usr/share/gocode/src" / _REFLECT, work)
    progress("kubernetes: generating code (about 2 minutes)")
    go.run(work / "go", tree, "make", "generated_files", "UPDATE_API_KNOWN_VIOLATIONS=true", log=work / "log")
    progress(f"kubernetes: building {', '.join(BUILT)} (about 5 minutes)")
    options = ("-p", "2", "-overlay", str(overlay), "-trimpath", "-ldflags", _flags(), "-o", f"{folder}/")
    programs = [f"./cmd/{name}" for name in BUILT]
    go.run(work / "go", tree, "go", "build", *options, *programs, log=work / "log")
    go.discard(work)


def source(apt: Apt, gopath: Path) -> Path:
    """Unpack Debian's source package in a GOPATH; returns its folder."""
    tree = gopath / _TREE
    tree.parent.mkdir(parents=True)
    version = apt.source("kubernetes", tree)
    if KUBERNETES not in version:
        raise ClusterError(f"Debian's source package kubernetes is {version}, the lab is made for {KUBERNETES}")
    return tree


def _overlay(old: Path, new: Path, work: Path) -> Path:
    """Take another release of a vendored package: the one in the tree breaks with Go 1.18 and newer."""
    replaced = {str(path): "" for path in _code(old)} | {str(old / path.name): str(path) for path in _code(new)}
    file = work / "overlay.json"
    file.write_text(json.dumps({"Replace": replaced}))
    return file


def _code(folder: Path) -> Sequence[Path]:
    found = [path for path in sorted(folder.iterdir()) if path.suffix in (".go", ".s")]
    if not found:
        raise ClusterError(f"{folder.name} has no Go files where the lab's Kubernetes expects them")
    return found


def _flags() -> str:
    """Linker flags; without the version the server calls itself v0.0.0."""
    major, minor, _patch = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = [
        f"-X k8s.io/kubernetes/vendor/{place}.{key}={value}" for place in _STAMPS for key, value in values.items()
    ]
    return " ".join(["-s -w", *stamps])
