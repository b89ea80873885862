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
VENDOR = Path("vendor")  # in the result: the packages that our own programs import
_READY = {"etcd": "etcd-server", "kubectl": "kubernetes-client"}  # program → the package it is taken from, as it is
_REFLECT = "github.com/modern-go/reflect2"
_TREE = Path("src/k8s.io/kubernetes")
# What our own programs import; kept beside the binaries, so that they can be built anew without all the rest.
_IMPORTS = (
    "github.com/golang/protobuf/jsonpb",
    "google.golang.org/grpc",
    "k8s.io/cri-api/pkg/apis/runtime/v1",
    "sigs.k8s.io/yaml",
)
_STAMPS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def build(folder: Path, progress: Callable[[str], None]) -> None:
    """Fill ``folder`` with the programs and with what our own programs need to be built (about 7 minutes, 600 MB)."""
    work = folder / "work"
    work.mkdir()
    progress("kubernetes: fetching Debian's source package")
    apt = Apt(work / "apt")
    for program, package in _READY.items():
        apt.package(package, work / package)
        shutil.copy(work / package / "usr/bin" / program, folder / program)
    tree = work / "go" / _TREE
    tree.parent.mkdir(parents=True)
    version = apt.source("kubernetes", tree)
    if KUBERNETES not in version:
        raise ClusterError(f"Debian's source package kubernetes is {version}, the lab is made for {KUBERNETES}")
    apt.package("golang-github-modern-go-reflect2-dev", work / "reflect2")
    overlay = _overlay(tree / "vendor" / _REFLECT, work / "reflect2/usr/share/gocode/src" / _REFLECT, work)
    progress("kubernetes: generating code (about 2 minutes)")
    go.run(work / "go", tree, "make", "generated_files", "UPDATE_API_KNOWN_VIOLATIONS=true", log=work / "log")
    progress(f"kubernetes: building {', '.join(BUILT)} (about 5 minutes)")
    options = ("-p", "2", "-overlay", str(overlay), "-trimpath", "-ldflags", _flags(), "-o", f"{folder}/")
    programs = [f"./cmd/{name}" for name in BUILT]
    go.run(work / "go", tree, "go", "build", *options, *programs, log=work / "log")
    _keep_imports(work / "go", tree, folder, work / "log")
    go.discard(work)


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


def _keep_imports(gopath: Path, tree: Path, target: Path, log: Path) -> None:
    """Copy the vendored packages that our own programs import, directly or not."""
    names = [f"k8s.io/kubernetes/vendor/{name}" for name in _IMPORTS]
    go.run(gopath, tree, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", *names, log=log)
    for line in log.read_text().splitlines():
        if not line:
            continue
        folder = Path(line).relative_to(tree)  # vendor/…
        (target / folder).mkdir(parents=True, exist_ok=True)
        for file in (tree / folder).iterdir():
            if file.is_file() and file.suffix in (".go", ".s", ".h"):
                shutil.copy(file, target / folder / file.name)
