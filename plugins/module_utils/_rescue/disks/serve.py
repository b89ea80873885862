# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine's half of machine_disks: look, and empty what the controller decided on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import job, protocol
from ..job import Run
from . import disk_facts, disk_gather, guard, inside, wiping
from .disk_facts import Disk
from .disk_tools import Tools


class ServeError(Exception):
    """The step was not done; ``begun``: but something was changed."""

    def __init__(self, message: str, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


def look(run: Run, health: bool = True, types: Sequence[str] = ("disk",)) -> dict[str, Any]:
    """All facts of all disks, how far a job of the runner in this rescue is, and the seconds since its boot."""
    tools = Tools(run)
    tools("udevadm", "settle", "--timeout=100")
    try:
        raw = disk_gather.read(tools, types, health=False)
        with inside.opened(tools, raw):
            raw = disk_gather.read(tools, types, health=health)
            raw.systems = inside.look(tools, raw)
            found = disk_facts.facts(raw, types)
    except disk_gather.GatherError as exc:
        raise ServeError(str(exc)) from exc
    return {"disks": found, "job": job.progress(run), "uptime": _uptime()}


def measure(run: Run, targets: Sequence[Disk], types: Sequence[str] = ("disk",)) -> dict[str, Any]:
    """How fast the disks are read that the controller means, one after the other; of a slow one, the better of two.

    ``targets``: as for :func:`wipe`. Returns :func:`gather.read_speed` of each, in their order.
    """
    tools = Tools(run)
    try:
        now = disk_facts.facts(disk_gather.read(tools, types, health=False), types)
        chosen = [wiping.still(target, now) for target in targets]
    except wiping.WipeError as exc:
        raise ServeError(str(exc), exc.begun) from exc
    except disk_gather.GatherError as exc:
        raise ServeError(str(exc)) from exc
    found = []
    for disk in chosen:
        one = disk_gather.read_speed(tools, disk["path"])
        if one["speed"] is not None and guard.too_slow(disk, one["speed"]):
            again = disk_gather.read_speed(tools, disk["path"])
            one = one if again["speed"] is not None and again["speed"] < one["speed"] else again
        found.append(one)
    return {"disks": found}


def wipe(
    run: Run,
    targets: Sequence[Disk],
    types: Sequence[str] = ("disk",),
    base: str = protocol.BASE,
    patience: float = wiping.PATIENCE,
) -> dict[str, Any]:
    """Empty the disks that the controller means, if they are still what it saw.

    ``targets``: ``serial``, ``wwn``, ``size`` and ``content_id`` of each, as :func:`look` returned them.
    """
    tools = Tools(run)
    try:
        with job.alone(base):
            if job.progress(run, base)["running"]:
                raise ServeError("a program of ours is writing in this rescue; wait for its end, or reset the machine")
            done = empty(tools, targets, types, patience)
            job.forget(base)
            left = disk_facts.facts(disk_gather.read(tools, types), types)
    except wiping.WipeError as exc:
        raise ServeError(str(exc), exc.begun) from exc
    except (disk_gather.GatherError, job.JobError) as exc:
        raise ServeError(str(exc)) from exc
    return {"disks": left, "steps": done}


def empty(
    tools: Tools, targets: Sequence[Disk], types: Sequence[str] = ("disk",), patience: float = wiping.PATIENCE
) -> list[str]:
    """The same within a job's start; returns what was done."""
    now = disk_facts.facts(disk_gather.read(tools, types, health=False), types)
    chosen = [wiping.still(target, now) for target in targets]
    return wiping.wipe(tools, [disk["name"] for disk in chosen], types, patience)


def _uptime() -> float:
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 1e9
