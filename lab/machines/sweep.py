# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes what a lab left behind that was killed: processes, mounts, loop devices, disks.

Network namespaces, cables and machines' mounts end with the last process that uses them, so that killing the
lab's control group already removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TextIO

from lab.images import cache

from . import loop, store
from .cgroup import CGroup, hierarchy


def labs_folder() -> Path:
    """Where the disks of all labs are: beside the images, since state folders may be in RAM.

    A host with much memory is faster with ``KUBENODE_DISKS`` in RAM: what guests write never waits for its disk then.
    """
    return Path(os.environ.get("KUBENODE_DISKS") or cache.root() / "labs")


def store_folder(label: str) -> Path:
    """Where the disks of one lab are."""
    return labs_folder() / label


def claim(label: str, state_dir: Path) -> TextIO:
    """Mark a lab as alive until the returned file is closed or its process ends."""
    labs_folder().mkdir(parents=True, exist_ok=True)
    path = labs_folder() / f"{label}.lock"
    while True:
        file = path.open("a+")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            break
        file.close()  # somebody swept it away while we waited
    file.truncate(0)
    file.write(str(state_dir))
    file.flush()
    return file


async def sweep(state_dir: Path, label: str) -> None:
    """Remove everything of the lab ``label``; the caller has made sure that nobody uses it."""
    if (hierarchy() / f"kubenode-lab-{label}").exists():
        cgroup = CGroup.of_lab(label)
        cgroup.kill()
        await cgroup.emptied()
        cgroup.remove()
    disks = store_folder(label)
    loop.detach_all(disks)
    await store.discard(disks)
    (labs_folder() / f"{label}.lock").unlink(missing_ok=True)
    for folder in ("machines", "classes"):
        shutil.rmtree(state_dir / folder, ignore_errors=True)
    for leftover in ("dhcp-hosts", "dhcp-leases", "dhcp.log"):
        (state_dir / leftover).unlink(missing_ok=True)


async def sweep_dead() -> list[str]:
    """Remove what all labs left whose processes are gone; returns their labels."""
    swept = []
    for path in sorted(labs_folder().glob("*.lock")):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            await sweep(Path(file.read() or labs_folder() / path.stem), path.stem)
            swept.append(path.stem)
    return swept
