# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages → a root file system tree (mmdebstrap, with a package cache beside the images)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from lab.apt import apt_options, sources
from lab.cache import Progress
from lab.errors import ImageError

from .recipe import Recipe

_DPKG = (
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "force-unsafe-io",
    "force-confold",  # files of the overlay that come before the packages stay
)


def bootstrap(recipe: Recipe, tree: Path, packages: Path, progress: Progress) -> None:
    """Build the tree of ``recipe`` in the folder ``tree``; downloaded packages are kept in ``packages``."""
    packages.mkdir(parents=True, exist_ok=True)
    early = recipe.overlay / "early"
    archive = "/var/cache/apt/archives"
    hooks = [
        f'--setup-hook=mkdir -p "$1"{archive}',
        f"--setup-hook=sync-in {shlex.quote(str(packages))} {archive}",
        f'--essential-hook=cp -r {shlex.quote(str(early))}/. "$1"/',
        f"--customize-hook=sync-out {archive} {shlex.quote(str(packages))}",
    ]
    lines = sources(recipe.suite)
    options = [f"--aptopt={option}" for option in ('APT::Install-Recommends "false"', *apt_options())]
    progress(
        f"{recipe.name}: installing {len(recipe.packages)} packages of {recipe.suite}"
        + (" from this host's sources" if lines else "")
    )
    command = [
        "mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--architectures=amd64",
        "--skip=download/empty", "--skip=essential/unlink", "--skip=cleanup/tmp",
        *(f"--dpkgopt={option}" for option in (*_DPKG, *(f"path-exclude={path}" for path in recipe.excluded))),
        *options, *hooks,
        f"--include={','.join(recipe.packages)}", recipe.suite, str(tree), *lines,
    ]  # fmt: skip
    # a place for compiled files that only our own Python knows would be filled in the tree
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-15:])
        raise ImageError(f"mmdebstrap could not build the {recipe.name} tree (status {done.returncode}):\n{tail}")
    for pattern in recipe.removed:
        for path in tree.glob(pattern):
            subprocess.run(["rm", "-rf", str(path)], check=True)
    _lay_over(recipe.overlay / "late", tree)
    for unit in recipe.masked:
        mask = tree / "etc/systemd/system" / unit
        mask.unlink(missing_ok=True)
        mask.symlink_to("/dev/null")
    _without_identity(tree)


def _lay_over(overlay: Path, tree: Path) -> None:
    """Copy the overlay files (modes kept, owner root)."""
    for source in sorted(overlay.rglob("*")):
        target = tree / source.relative_to(overlay)
        if source.is_symlink():
            target.unlink(missing_ok=True)
            target.symlink_to(source.readlink())
        elif source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.unlink(missing_ok=True)
            shutil.copy(source, target)


def _without_identity(tree: Path) -> None:
    """Nothing that must differ between two machines may come from the image."""
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree / "etc/machine-id").write_text("")
    (tree / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    (tree / "var/lib/systemd/random-seed").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").unlink(missing_ok=True)  # mmdebstrap's copy of the host's
