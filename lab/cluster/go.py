# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs Go, in a GOPATH of its own and without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError

# program → the Debian package that brings it
PROGRAMS = {"go": "golang-go", "jq": "jq", "make": "make", "rsync": "rsync", "dpkg-source": "dpkg-dev"}
#: the programs that building our own ones takes
FOR_TOOLS = ("go", "dpkg-source")


def require_programs(names: Sequence[str] = tuple(PROGRAMS)) -> None:
    """Raise one clear error naming every missing package."""
    missing = {PROGRAMS[program] for program in names if not shutil.which(program)}
    if missing:
        raise ClusterError(
            "building the lab's Kubernetes, crictl and pause needs Debian packages; "
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
            f"{' '.join(command[:2])} failed (status {done.returncode}) for the lab's Kubernetes:\n{tail}"
        )


def discard(work: Path) -> None:
    """Remove a folder in which Go has worked: it makes some of its folders read-only."""
    subprocess.run(["chmod", "-R", "u+w", str(work)], check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(work)], check=True)
