# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs Go, in a GOPATH of its own: without a network for Debian's sources, by its proxy for modules."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError

# program → the Debian package that brings it
_PACKAGES = {"go": "golang-go", "dpkg-source": "dpkg-dev"}
#: the programs that building our own ones takes
FOR_TOOLS = tuple(_PACKAGES)


def require_programs(names: Sequence[str]) -> None:
    """Raise one clear error naming every missing package."""
    missing = {_PACKAGES[program] for program in names if not shutil.which(program)}
    if missing:
        raise ClusterError(
            "building the lab's crictl and pause needs Debian packages; "
            f"run: apt-get install {' '.join(sorted(missing))}"
        )


def run(gopath: Path, tree: Path, *command: str, log: Path) -> None:
    """Run a command of the build, politely; its words go to ``log``, the last ones into the error."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(gopath),
        "GOPATH": str(gopath),
        "GOCACHE": str(gopath / "cache"),
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "GOPROXY": "off",
        "CGO_ENABLED": "0",
        "LC_ALL": "C.UTF-8",
    }
    with log.open("w") as file:
        done = subprocess.run(
            ["nice", "-n", "10", *command], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=file,
            stderr=file, check=False,
        )  # fmt: skip
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise ClusterError(
            f"{' '.join(command[:2])} failed (status {done.returncode}) for the lab's crictl and pause:\n{tail}"
        )


def with_modules(module: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of go in the folder of a module, politely. Where modules come from is the user's own setting."""
    environment = {
        **os.environ,
        "GOPATH": str(module.parent / "go"),
        "GOMODCACHE": str(module.parent / "go/pkg/mod"),
        "GOCACHE": str(module.parent / "cache"),
        "GO111MODULE": "on",
        "GOWORK": "off",
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -mod=mod -modcacherw".strip(),
        "CGO_ENABLED": "0",
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        ["nice", "-n", "10", "go", *arguments], cwd=module, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def discard(work: Path) -> None:
    """Remove a folder in which Go has worked: it makes some of its folders read-only."""
    subprocess.run(["chmod", "-R", "u+w", str(work)], check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(work)], check=True)
