# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes what labs left behind that were killed: processes, mounts, loop devices, disks, settings of the host.

Network namespaces, cables and machines' mounts end with the last process that uses them, so that killing the
lab's control group already removes them. A lab is up while its process holds its lock; processes of a lab of
which nothing else is known are left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from lab import cache
from lab.state import State, StateError, base, process_start

from . import loop, store
from .cgroup import CGroup, hierarchy, populated
from .guest_view import discard_views
from .host_commands import HostSettings, host_folder
from .lab_network import remove_dead_links

_GROUP = "kubenode-lab-"
_PREFIX = "process-"


def label_of(name: str, state_dir: Path) -> str:
    """A short name for what the kernel sees of a lab; two labs in different folders never share one."""
    return f"{name[:20]}-{hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:6]}"


def labs_folder() -> Path:
    """Where the disks of all labs are: beside the images, since state folders may be in RAM.

    A host with much memory is faster with ``KUBENODE_DISKS`` in RAM: what guests write never waits for its disk then.
    """
    return Path(os.environ.get("KUBENODE_DISKS") or cache.root() / "labs")


def store_folder(label: str) -> Path:
    """Where the disks of one lab are."""
    return labs_folder() / label


def register_folder() -> Path:
    """The folder that lists every lab of this host; its disks and its state may be elsewhere."""
    return host_folder() / "labs"


def claim(label: str, state_dir: Path) -> contextlib.ExitStack:
    """Mark a lab as alive until what is returned is closed or its process ends; waits for who removes an older one."""
    known = json.dumps({"state": str(state_dir), "labs": str(labs_folder())})
    texts = {labs_folder() / f"{label}.lock": str(state_dir), register_folder() / label: known}
    while True:
        with contextlib.ExitStack() as stack:
            for path, text in texts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.callback(_locked(path, text).close)
            if all(path.exists() for path in texts):  # who waited for the second may have lost the first meanwhile
                return stack.pop_all()


async def begin(label: str, state_dir: Path) -> contextlib.ExitStack:
    """Claim a lab, and remove what an older one of this label left."""
    claimed = await asyncio.to_thread(claim, label, state_dir)
    try:
        await _remove(state_dir, label, labs_folder())
    except BaseException:
        claimed.close()
        raise
    return claimed


def _locked(path: Path, text: str) -> TextIO:
    while True:
        file = path.open("a+")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            break
        file.close()  # another process removed it while we waited
    file.truncate(0)
    file.write(text)
    file.flush()
    return file


async def clean_up(state_dir: Path, label: str, labs: Path | None = None) -> list[str]:
    """Remove everything of the lab ``label``, and its locks. Returns what there was.

    The caller holds one of them: a lab of this label that begins meanwhile would lose its disks. ``labs`` is the folder
    of the disks of all labs, when that lab had another one than we have.
    """
    labs = labs or labs_folder()
    gone = await _remove(state_dir, label, labs)
    (labs / f"{label}.lock").unlink(missing_ok=True)
    (register_folder() / label).unlink(missing_ok=True)
    return gone


async def _remove(state_dir: Path, label: str, labs: Path) -> list[str]:
    gone = await end_processes(label)
    disks = labs / label
    if count := loop.detach_all(disks):
        gone.append(f"{count} loop device{'s' * (count > 1)}")
    if await store.discard(disks):
        gone.append(f"disks in {disks}")
    await discard_views(state_dir)
    shutil.rmtree(state_dir / "machines", ignore_errors=True)
    for name in ("dhcp-hosts", "dhcp-leases", "dhcp.log"):
        (state_dir / name).unlink(missing_ok=True)
    return gone


async def end_processes(label: str) -> list[str]:
    """End the processes of a lab, and with them its namespaces, cables, rules and machines' mounts."""
    if not (hierarchy() / f"kubenode-lab-{label}").exists():
        return []
    cgroup = CGroup.of_lab(label)
    running = cgroup.populated
    cgroup.kill()
    await cgroup.emptied()
    cgroup.remove()
    return ["running processes and their namespaces"] * running + ["control groups"]


async def clean_up_dead_labs() -> list[str]:
    """Remove what all labs left whose processes are gone; returns their labels."""
    removed = []
    for path in sorted(labs_folder().glob("*.lock")):
        with unused(path) as text:
            if text is not None:
                await clean_up(Path(text or labs_folder() / path.stem), path.stem)
                removed.append(path.stem)
    return removed


@contextlib.contextmanager
def unused(path: Path) -> Iterator[str | None]:
    """What a lock file says, held meanwhile; None when it is not there or another process holds it."""
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


async def _purge_kernel() -> tuple[list[str], list[str]]:
    """What was removed, and what was kept and why; a line each."""
    removed: list[str] = []
    kept: list[str] = []
    await _dead_labs(removed)
    await _stray_groups(removed, kept)
    await _stray_disks(removed)
    removed += [f"network link {link}" for link in await remove_dead_links()]
    given_back, in_use = loop.give_back()
    removed += [f"{device}: its cache mode is the one it had before" for device in given_back]
    kept += [f"{device}: keeps its cache mode while it is in use" for device in in_use]
    _settings(removed, kept)
    return removed, kept


def labs_up() -> list[str]:
    """The labels of the labs that are up on this host, as far as anything is known of them."""
    up = {path.name.removeprefix(_GROUP) for path in hierarchy().glob(f"{_GROUP}*") if populated(path)}
    up |= {path.name for path in register_folder().glob("*") if _held(path)}
    return sorted(up | {path.stem for path in labs_folder().glob("*.lock") if _held(path)})


async def _dead_labs(removed: list[str]) -> None:
    for path in sorted(register_folder().glob("*")):
        with unused(path) as text:
            if text is None:
                continue
            known = json.loads(text or "{}")
            labs = Path(known["labs"]) if "labs" in known else None
            gone = await clean_up(Path(known.get("state") or register_folder() / "none"), path.name, labs)
            removed += [f"lab {path.name}: {what}" for what in gone or ["its lock"]]
    removed += [f"lab {label}: what it had left" for label in await clean_up_dead_labs()]


async def _stray_groups(removed: list[str], kept: list[str]) -> None:
    """Control groups of which nothing else is left, or of labs that another version started."""
    for path in sorted(hierarchy().glob(f"{_GROUP}*")):
        label = path.name.removeprefix(_GROUP)
        if _held(register_folder() / label) or _held(labs_folder() / f"{label}.lock"):
            continue
        if populated(path):
            kept.append(f"lab {label}: its processes run, and nothing says that their lab is gone")
            continue
        with CGroup(path).unheld() as free:  # a lab that begins has no process in it yet
            removed += [f"lab {label}: {what}" for what in (await end_processes(label) if free else [])]


async def _stray_disks(removed: list[str]) -> None:
    labs = labs_folder()
    up = labs_up()
    found = {path.name.removesuffix(".xfs") for path in labs.glob("*") if path.suffix != ".lock"}
    for label in sorted(found - set(up)):
        if (labs / f"{label}.lock").exists():
            continue  # it began just now
        if count := loop.detach_all(labs / label):
            removed.append(f"lab {label}: {count} loop device{'s' * (count > 1)}")
        if await store.discard(labs / label):
            removed.append(f"lab {label}: disks in {labs / label}")


def _settings(removed: list[str], kept: list[str]) -> None:
    settings = HostSettings()
    for setting in settings.all():
        if not setting.is_relative_to("/proc/sys"):
            continue
        name = ".".join(setting.relative_to("/proc/sys").parts)
        up = labs_up()
        if up:
            kept.append(f"{name}: stays as it is while labs are up ({', '.join(up)})")
        elif (before := settings.give_back(setting, unless=lambda: bool(labs_up()))) is not None:
            removed.append(f"{name}: {before} again")


def _held(path: Path) -> bool:
    with unused(path) as text:
        return text is None and path.exists()


def process_state(name: str, number: int) -> State:
    """A state folder for a lab inside this process, marked so that others see when the process is gone."""
    state = State(f"{_PREFIX}{os.getpid()}-{number}")
    state.make()
    state.write({"name": name, "pid": os.getpid(), "pid_start": process_start(os.getpid()), "ready": False})
    return state


async def clean_up_lab(name: str, folder: Path) -> list[str]:
    """Remove processes, mounts, devices and disks of the lab ``name``, whose state is in ``folder``; what there was."""
    if os.geteuid() != 0 or not folder.is_dir():
        return []
    folder = folder.resolve()
    label = label_of(name, folder)
    with await asyncio.to_thread(claim, label, folder):
        return await clean_up(folder, label)


async def clean_up_dead_processes() -> None:
    """Remove what labs inside processes left, as far as those processes are gone."""
    for folder in base().glob(f"{_PREFIX}*"):
        state = State(folder.name)
        values = state.read()
        if values is None or state.running() is not None:
            continue
        # Another process may be at the same work; the second one finds the folder gone.
        with contextlib.suppress(FileNotFoundError), state.locked():
            await clean_up_lab(values["name"], folder / "site")
            shutil.rmtree(folder, ignore_errors=True)


async def purge() -> tuple[list[str], list[str]]:
    """Remove what all labs of this host left that are gone: what was removed, what was kept; a line each."""
    removed: list[str] = []
    for folder in sorted(base().glob("*")):
        if not folder.is_dir() or folder.stat().st_uid != os.geteuid():
            continue
        with contextlib.suppress(StateError, FileNotFoundError, BlockingIOError):
            removed += await _purge_state(State(folder.name))
    if os.geteuid() != 0:
        return removed, ["the kernel's part of labs: only root can look for it"]
    gone, kept = await _purge_kernel()
    return removed + gone, kept


async def _purge_state(state: State) -> list[str]:
    """Remove the folder of a lab that is not up, and what it left in the kernel."""
    if {path.name for path in state.folder.iterdir()} <= {"log", "lock", "published"}:
        return []  # it ended well and left its log, or it begins at this moment
    with state.locked(wait=False):
        values = state.read()
        if state.running() is not None:
            return []
        name = (values or {}).get("name", state.name)
        gone = await clean_up_lab(name, state.folder / "site")
        shutil.rmtree(state.folder, ignore_errors=True)
    return [f"lab {name}: {what}" for what in [*gone, f"its state in {state.folder}"]]
