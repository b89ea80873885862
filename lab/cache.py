# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab keeps between runs: made whole or not at all, one builder at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KEPT_SECONDS = 3 * 24 * 3600  # how long what nobody asks for any more stays


def root() -> Path:
    """The folder of everything the lab keeps between runs."""
    own = os.environ.get("KUBENODE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubenode-provision"


def images() -> Path:
    """The folder of the built images."""
    return root() / "images"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes out while ``name`` is worked on (the lock ends with the process)."""
    images().mkdir(parents=True, exist_ok=True)
    with (images() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to build in; it becomes ``target`` when the block ends well and is removed when it does not."""
    partial = target.with_name(f".{target.name}.part")
    remove(partial)
    partial.mkdir(parents=True)
    partial.chmod(0o755)
    try:
        yield partial
    except BaseException:
        remove(partial)
        raise
    partial.rename(target)


def remove(folder: Path) -> None:
    """Remove a tree; what a killed build left mounted inside is unmounted, never emptied."""
    if folder.exists():
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if Path(mount).is_relative_to(folder)]):
            subprocess.run(["umount", "--lazy", mount], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


def sha256(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def store(name: str, content: bytes, mode: int = 0o644) -> Path:
    """A file called ``name`` with this content; the same one for the same content."""
    folder = root() / "mirror" / "stored" / hashlib.sha256(content).hexdigest()[:16]
    target = folder / name
    if target.exists():
        os.utime(folder)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(content)
    os.chmod(file.name, mode)
    os.replace(file.name, target)
    _forget_old(folder.parent)
    return target


def _forget_old(folder: Path) -> None:
    """Remove what nobody asked for in the last days."""
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > KEPT_SECONDS:
            remove(path)
