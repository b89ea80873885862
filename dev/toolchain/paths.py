# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things lie: the checkout, the trees in which Ansible finds it, the cache, which can be made again, memory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
REQUIREMENTS = CHECKOUT / "requirements"
NAMESPACE, NAME = "kubenode", "provision"


def cache() -> Path:
    """The cache folder: KUBENODE_CACHE, else kubenode-provision below the XDG cache."""
    named = os.environ.get("KUBENODE_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kubenode-provision"


def memory(least: int, folder: Path = Path("/dev/shm"), meminfo: Path = Path("/proc/meminfo")) -> Path | None:
    """A folder in memory that takes `least` bytes, if there is one; disks of tests cost a sixth less work there."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        available = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        free = shutil.disk_usage(folder).free if folder.is_mount() else 0
    except (OSError, StopIteration):
        return None
    return folder if min(available, free) >= least else None


def checkout_id() -> str:
    """Distinguishes several checkouts that share one cache."""
    return hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]


def linked_tree() -> Path:
    """A folder for ANSIBLE_COLLECTIONS_PATH in which the collection is this checkout, or a symlink to it."""
    if CHECKOUT.parts[-3:] == ("ansible_collections", NAMESPACE, NAME):
        return CHECKOUT.parents[2]
    tree = cache() / ("tree-" + checkout_id())
    link = tree / "ansible_collections" / NAMESPACE / NAME
    link.parent.mkdir(parents=True, exist_ok=True)
    if not (link.is_symlink() and Path(os.readlink(link)) == CHECKOUT):
        temporary = link.with_name(f"{NAME}.{os.getpid()}")
        temporary.symlink_to(CHECKOUT)
        # rename, so that parallel test workers never see the link missing
        temporary.replace(link)
    return tree


def provides_checkout(entry: str) -> bool:
    """Whether this entry of ANSIBLE_COLLECTIONS_PATH leads to this very checkout."""
    try:
        return (Path(entry).expanduser() / "ansible_collections" / NAMESPACE / NAME).samefile(CHECKOUT)
    except OSError:
        return False


def tracked_files(checkout: Path = CHECKOUT) -> list[str]:
    """Files git tracks or would track (untracked, not ignored), relative to the checkout."""
    listing = subprocess.run(
        ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode()
    return sorted({name for name in listing.split("\0") if name and os.path.lexists(checkout / name)})


def tree_digest() -> str:
    """A digest of every file of the checkout that git tracks or would track."""
    total = hashlib.sha256()
    for name in tracked_files():
        path = CHECKOUT / name
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def installed_tree(folder: Path) -> Path:
    """A folder for ANSIBLE_COLLECTIONS_PATH, below an empty one, where the collection is as a user has it.

    ansible-galaxy builds it of the checkout's files and installs it from the file.
    """
    source, collections = folder / "source", folder / "collections"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, source / name, follow_symlinks=False)
    # another path than that of who asks: what is found there is not installed
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collections)}

    def galaxy(*words: str | Path) -> None:
        subprocess.run(["ansible-galaxy", "collection", *words], env=environment, check=True, timeout=300)

    galaxy("build", "--output-path", folder, source)
    (built,) = folder.glob(f"{NAMESPACE}-{NAME}-*.tar.gz")
    galaxy("install", built, "--no-deps", "-p", collections)
    shutil.rmtree(source)
    return collections


def copied_tree(label: str, checkout: Path = CHECKOUT) -> Path:
    """A real copy of the checkout at …/ansible_collections/kubenode/provision; returns the collection's folder.

    For tools that refuse symlinks or that leave files beside the sources (ansible-test, galaxy-importer).
    """
    target = cache() / f"copy-{checkout_id()}-{label}" / "ansible_collections" / NAMESPACE / NAME
    target.mkdir(parents=True, exist_ok=True)
    wanted = tracked_files(checkout)
    _remove_strangers(target, set(wanted))
    for name in wanted:
        source, copy = checkout / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.unlink(missing_ok=True)  # a file that became a link
        # copy2 keeps the time stamp, so that tools with caches of their own see unchanged files as unchanged
        shutil.copy2(source, copy, follow_symlinks=False)
    return target


def _remove_strangers(target: Path, wanted: set[str]) -> None:
    """Remove from the copy what the checkout no longer has."""
    for folder, names, files in os.walk(target, topdown=False):
        here = Path(folder)
        for name in files:
            path = here / name
            if str(path.relative_to(target)) not in wanted or path.is_symlink():
                path.unlink()
        for name in names:
            path = here / name
            if path.is_symlink():
                path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()
