# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What labs that were killed left in the kernel, and its removal."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from lab.state import State, base, process_start

_PREFIX = "process-"


def process_state(name: str, number: int) -> State:
    """A state folder for a lab inside this process, marked so that others see when the process is gone."""
    state = State(f"{_PREFIX}{os.getpid()}-{number}")
    state.make()
    state.write({"name": name, "pid": os.getpid(), "pid_start": process_start(os.getpid()), "ready": False})
    return state


async def remove_site(name: str, site: Path) -> None:
    """Remove processes, mounts, devices and disks of the lab ``name`` whose site folder this is."""
    if os.geteuid() != 0 or not site.is_dir():
        return
    from lab.machines.rooted import label_of
    from lab.machines.sweep import sweep

    folder = site.resolve()
    await sweep(folder, label_of(name, folder))


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
