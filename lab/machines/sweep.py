# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes what a lab left behind that was killed: processes, mounts, loop devices, disks.

Network namespaces, cables and machines' mounts end with the last process that uses them, so that killing the
lab's control group already removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from lab.images import cache

from . import loop, store, views
from .borrowed import host_folder
from .cgroup import CGroup, hierarchy


def labs_folder() -> Path:
    """Where the disks of all labs are: beside the images, since state folders may be in RAM.

    A host with much memory is faster with ``KUBENODE_DISKS`` in RAM: what guests write never waits for its disk then.
    """
    return Path(os.environ.get("KUBENODE_DISKS") or cache.root() / "labs")


def store_folder(label: str) -> Path:
    """Where the disks of one lab are."""
    return labs_folder() / label


def register_folder() -> Path:
    """Where every lab of this host is known, wherever its disks and its state are."""
    return host_folder() / "labs"


def claim(label: str, state_dir: Path) -> contextlib.ExitStack:
    """Mark a lab as alive until what is returned is closed or its process ends."""
    stack = contextlib.ExitStack()
    known = json.dumps({"state": str(state_dir), "labs": str(labs_folder())})
    for path, text in ((labs_folder() / f"{label}.lock", str(state_dir)), (register_folder() / label, known)):
        path.parent.mkdir(parents=True, exist_ok=True)
        stack.callback(_locked(path, text).close)
    return stack


def _locked(path: Path, text: str) -> TextIO:
    while True:
        file = path.open("a+")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            break
        file.close()  # somebody swept it away while we waited
    file.truncate(0)
    file.write(text)
    file.flush()
    return file


async def sweep(state_dir: Path, label: str, labs: Path | None = None) -> list[str]:
    """Remove everything of the lab ``label``; the caller has made sure that nobody uses it. Returns what there was.

    ``labs`` is the folder of the disks of all labs, when that lab had another one than we have.
    """
    labs = labs or labs_folder()
    gone = await end(label)
    disks = labs / label
    if count := loop.detach_all(disks):
        gone.append(f"{count} loop device{'s' * (count > 1)}")
    if await store.discard(disks):
        gone.append(f"disks in {disks}")
    (labs / f"{label}.lock").unlink(missing_ok=True)
    (register_folder() / label).unlink(missing_ok=True)
    await views.discard(state_dir)
    shutil.rmtree(state_dir / "machines", ignore_errors=True)
    for leftover in ("dhcp-hosts", "dhcp-leases", "dhcp.log"):
        (state_dir / leftover).unlink(missing_ok=True)
    return gone


async def end(label: str) -> list[str]:
    """End the processes of a lab, and with them its namespaces, cables, rules and machines' mounts."""
    if not (hierarchy() / f"kubenode-lab-{label}").exists():
        return []
    cgroup = CGroup.of_lab(label)
    running = cgroup.populated
    cgroup.kill()
    await cgroup.emptied()
    cgroup.remove()
    return ["running processes and their namespaces"] * running + ["control groups"]


async def sweep_dead() -> list[str]:
    """Remove what all labs left whose processes are gone; returns their labels."""
    swept = []
    for path in sorted(labs_folder().glob("*.lock")):
        with unused(path) as text:
            if text is not None:
                await sweep(Path(text or labs_folder() / path.stem), path.stem)
                swept.append(path.stem)
    return swept


@contextlib.contextmanager
def unused(path: Path) -> Iterator[str | None]:
    """What a lock file says, held meanwhile; None when it is not there or somebody holds it."""
    try:
        file = path.open()
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file.read()
