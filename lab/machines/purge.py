# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes from this host what labs left that are gone, wherever they kept their disks, and undoes what they changed.

A lab is up while its process holds its lock; processes of a lab of which nothing else is known are left alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from . import loop, store, sweep
from .borrowed import Borrowed
from .cgroup import CGroup, hierarchy
from .network import remove_dead_links

_GROUP = "kubenode-lab-"


async def purge() -> tuple[list[str], list[str]]:
    """What was removed, and what was left alone and why; a line each."""
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
    up = {path.name.removeprefix(_GROUP) for path in hierarchy().glob(f"{_GROUP}*") if _populated(path)}
    up |= {path.name for path in sweep.register_folder().glob("*") if _held(path)}
    return sorted(up | {path.stem for path in sweep.labs_folder().glob("*.lock") if _held(path)})


async def _dead_labs(removed: list[str]) -> None:
    for path in sorted(sweep.register_folder().glob("*")):
        with sweep.unused(path) as text:
            if text is None:
                continue
            known = json.loads(text or "{}")
            labs = Path(known["labs"]) if "labs" in known else None
            gone = await sweep.sweep(Path(known.get("state") or sweep.register_folder() / "none"), path.name, labs)
            removed += [f"lab {path.name}: {what}" for what in gone or ["its lock"]]
    removed += [f"lab {label}: what it had left" for label in await sweep.sweep_dead()]


async def _stray_groups(removed: list[str], kept: list[str]) -> None:
    """Control groups of which nothing else is left, or of labs that another version started."""
    for path in sorted(hierarchy().glob(f"{_GROUP}*")):
        label = path.name.removeprefix(_GROUP)
        if _held(sweep.register_folder() / label) or _held(sweep.labs_folder() / f"{label}.lock"):
            continue
        if _populated(path):
            kept.append(f"lab {label}: its processes run, and nothing says that their lab is gone")
            continue
        with CGroup(path).unheld() as free:  # a lab that begins has no process in it yet
            removed += [f"lab {label}: {what}" for what in (await sweep.end(label) if free else [])]


async def _stray_disks(removed: list[str]) -> None:
    """Disks, mounts and loop devices of labs whose locks are gone."""
    labs = sweep.labs_folder()
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
    borrowed = Borrowed()
    for setting in borrowed.all():
        if not setting.is_relative_to("/proc/sys"):
            continue
        name = ".".join(setting.relative_to("/proc/sys").parts)
        up = labs_up()
        if up:
            kept.append(f"{name}: stays as it is while labs are up ({', '.join(up)})")
        elif (before := borrowed.give_back(setting, unless=lambda: bool(labs_up()))) is not None:
            removed.append(f"{name}: {before} again")


def _held(path: Path) -> bool:
    with sweep.unused(path) as text:
        return text is None and path.exists()


def _populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False
