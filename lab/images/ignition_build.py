# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real Ignition, built of its Go module: it writes user data as CoreOS's initramfs does.

Fedora CoreOS itself, RHCOS and Flatcar are published as images only, which no package registry carries.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.apt import Archive
from lab.cache import Progress, quiet
from lab.cluster import go_build
from lab.cluster.go_build import Recipe, discard
from lab.errors import Unavailable

from .recipe import SUITE


@dataclass(frozen=True)
class _StaticRecipe(Recipe):
    """A program that is linked with a C library, statically: it runs on any release of Debian."""

    #: a Debian package with headers and archive
    library: str = ""
    linking: str = '-linkmode external -extldflags "-static"'


_INTERNAL = "github.com/coreos/ignition/v2/internal"
_RECIPE = _StaticRecipe(
    name="ignition",
    module="github.com/coreos/ignition/v2",
    version="v2.24.0",
    sum="h1:TVcsSWiYvhXihD8Mss3CTRuKaNZM2OIfpoKiudIhrKo=",
    programs={"ignition": _INTERNAL},
    stamps={
        f"{_INTERNAL}/version.Raw": "v2.24.0",
        # as distributions without SELinux build it, and with Debian's file of keys
        f"{_INTERNAL}/distro.selinuxRelabel": "false",
        f"{_INTERNAL}/distro.writeAuthorizedKeysFragment": "false",
    },
    library="libblkid-dev",
)


def ensure(progress: Progress = quiet) -> Path:
    """Ignition, built when it is missing: five minutes. `Unavailable` without a C compiler, Go or the modules."""
    folder = cache.root() / _RECIPE.folder
    go_build.once(folder, lambda partial: _build(partial, progress), progress)
    return folder / "ignition"


def _build(folder: Path, progress: Progress) -> None:
    if not shutil.which("gcc"):
        raise Unavailable("Ignition needs a C compiler to be built; run: apt-get install gcc libc6-dev")
    debs, tree = folder / "debs", folder / "library"
    debs.mkdir()
    with cache.locked("mirror"):
        found = Archive(SUITE).download((_RECIPE.library,), debs)
    for deb in found:
        subprocess.run(["dpkg-deb", "--extract", str(deb), str(tree)], check=True)
    settings = {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-I{tree}/usr/include",
        "CGO_LDFLAGS": f"-L{tree}/usr/lib/x86_64-linux-gnu",
    }
    go_build.build_recipe(_RECIPE, folder, progress, settings, _RECIPE.linking)
    discard(debs)
    discard(tree)
