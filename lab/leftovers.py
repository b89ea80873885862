# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What labs that were killed left in the kernel, and its removal."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from lab.state import State, StateError, base, process_start

_PREFIX = "process-"


def process_state(name: str, number: int) -> State:
    """A state folder for a lab inside this process, marked so that others see when the process is gone."""
    state = State(f"{_PREFIX}{os.getpid()}-{number}")
    state.make()
    state.write({"name": name, "pid": os.getpid(), "pid_start": process_start(os.getpid()), "ready": False})
    return state


async def remove_site(name: str, site: Path) -> list[str]:
    """Remove processes, mounts, devices and disks of the lab ``name`` whose site folder this is; what there was."""
    if os.geteuid() != 0 or not site.is_dir():
        return []
    from lab.machines.rooted import label_of
    from lab.machines.sweep import sweep

    folder = site.resolve()
    return await sweep(folder, label_of(name, folder))


async def remove_dead_processes_labs() -> None:
    """Remove what labs inside processes left, as far as those processes are gone."""
    for folder in base().glob(f"{_PREFIX}*"):
        state = State(folder.name)
        values = state.read()
        if values is None or state.running() is not None:
            continue
        # Another process may be at the same work; whoever comes second finds the folder gone.
        with contextlib.suppress(FileNotFoundError), state.locked():
            await remove_site(values["name"], folder / "site")
            shutil.rmtree(folder, ignore_errors=True)


async def purge() -> tuple[list[str], list[str]]:
    """Remove what all labs of this host left that are gone: what was removed, what was left alone; a line each."""
    removed: list[str] = []
    for folder in sorted(base().glob("*")):
        if not folder.is_dir() or folder.stat().st_uid != os.geteuid():
            continue
        with contextlib.suppress(StateError, FileNotFoundError, BlockingIOError):
            removed += await _purge_state(State(folder.name))
    if os.geteuid() != 0:
        return removed, ["the kernel's part of labs: only root can look for it"]
    from lab.machines.purge import purge as purge_kernel

    gone, kept = await purge_kernel()
    return removed + gone, kept


async def _purge_state(state: State) -> list[str]:
    """Remove the folder of a lab that is not up, and what its site says is still there."""
    if {path.name for path in state.folder.iterdir()} <= {"log", "lock", "published"}:
        return []  # it ended well and left its log, or it begins at this moment
    with state.locked(wait=False):
        values = state.read()
        if state.running() is not None:
            return []
        name = (values or {}).get("name", state.name)
        gone = await remove_site(name, state.folder / "site")
        shutil.rmtree(state.folder, ignore_errors=True)
    return [f"lab {name}: {what}" for what in [*gone, f"its state in {state.folder}"]]
