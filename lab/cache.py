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
from collections.abc import Callable, Iterator
from pathlib import Path

KEPT_SECONDS = 3 * 24 * 3600  # what was not used for so long is removed
DIGITS = 16  # of the digest at the end of a folder's name
Progress = Callable[[str], None]


def quiet(_message: str) -> None:
    """Progress that is not shown."""


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
def locked(name: str, progress: Progress = quiet) -> Iterator[None]:
    """Keep other processes out while ``name`` is worked on (the lock ends with the process); says that it waits."""
    images().mkdir(parents=True, exist_ok=True)
    with (images() / f".{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{name}: waiting for another process, which works on it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(
    folder: Path,
    build: Callable[[Path], object],
    lock: str,
    marker: str = "",
    forget: Callable[[Path], None] | None = None,
    progress: Progress = quiet,
) -> Path:
    """Return ``folder`` (NAME-DIGEST), filled by ``build`` when it is missing; one process builds, the others wait.

    The time of change of ``marker``, a file in the folder, is the time of the last use; without ``marker``, that of the
    folder itself. Before a build, ``forget`` removes other folders of this name that were not used for days.
    """
    used = folder / marker
    if not used.exists():
        with locked(lock, progress):
            if not used.exists():
                if forget is None:
                    forget_unused(folder, marker)
                else:
                    forget(folder)
                with new_folder(folder) as partial:
                    build(partial)
                    if marker:
                        (partial / marker).touch()
    os.utime(used)
    return folder


def forget_unused(keep: Path, marker: str = "") -> None:
    """Remove what killed builds left, and other folders of this name that were not used for days (under the lock)."""
    name = f"{keep.name.rpartition('-')[0]}-{'?' * DIGITS}"
    for partial in keep.parent.glob(f".{name}.part"):
        remove(partial)
    for old in keep.parent.glob(name):
        if old != keep and time.time() - (old / marker).stat().st_mtime > KEPT_SECONDS:
            remove(old)


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
    for path in folder.parent.iterdir():
        if time.time() - path.stat().st_mtime > KEPT_SECONDS:
            remove(path)
    return target
