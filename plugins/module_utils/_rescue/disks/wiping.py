# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Empties disks: carries out the plan and looks afterwards whether they are empty."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator, Sequence

from . import disk_facts, disk_gather, disk_names, wipe_plan
from .disk_facts import Disk
from .disk_tools import Tools

#: Seconds for which another program (udev, a mount that has just ended) may still hold a device.
PATIENCE = 120.0


class WipeError(Exception):
    """The disks were not emptied, or not wholly; the text says where it stopped. ``begun``: something was done."""

    def __init__(self, message: str, begun: bool) -> None:
        super().__init__(message)
        self.begun = begun


def still(target: Disk, disks: Sequence[Disk]) -> Disk:
    """The facts of a disk that was looked at; raises when it is not there, or does not hold what it held then.

    ``target``: its ``name``, ``serial``, ``wwn``, ``size``, ``model`` and ``content_id``, as it was looked at.
    """
    about = (target["serial"], target["wwn"], target["size"])
    found = [disk for disk in disks if (disk["serial"], disk["wwn"], disk["size"]) == about]
    if len(found) > 1:
        found = [disk for disk in found if disk["name"] == target["name"]]
    if len(found) != 1:
        raise WipeError(f"disk {disk_names.identity(target)} is not there any more; nothing was erased", False)
    if found[0]["content_id"] != target["content_id"]:
        raise WipeError(
            f"disk {found[0]['name']} ({disk_names.identity(target)}) does not hold any more what was found "
            "before; nothing was erased. Run again",
            False,
        )
    return found[0]


def wipe(tools: Tools, disks: Sequence[str], types: Sequence[str] = ("disk",), patience: float = PATIENCE) -> list[str]:
    """Empty the disks of these kernel names; returns what was done, a line for each step."""
    raw = disk_gather.read(tools, types, health=False)
    gone = [name for name in disks if name not in raw.nodes]
    if gone:
        raise WipeError(f"disk {', '.join(gone)} is not there any more", False)
    try:
        steps = wipe_plan.plan(raw, disks)
    except wipe_plan.PlanError as exc:
        raise WipeError(str(exc), False) from exc
    with _locked([raw.nodes[name].path for name in disks], patience):
        done = _carry_out_all(tools, steps, patience)
    tools("udevadm", "settle", "--timeout=100")
    _verify(tools, disks, types, patience)
    return done


def _carry_out_all(tools: Tools, steps: Sequence[wipe_plan.Step], patience: float) -> list[str]:
    done: list[str] = []
    for step in steps:
        reason = _carry_out(tools, step, patience)
        if reason and not step.optional:
            before = f"; done before: {'; '.join(done)}" if done else ""
            raise WipeError(f"could not {step.what}: {reason}{before}", bool(done))
        if not reason:
            done.append(step.what)
    return done


@contextlib.contextmanager
def _locked(paths: Sequence[str], patience: float) -> Iterator[None]:
    """Hold the locks that keep udev from starting again, at every change, what was just stopped."""
    deadline = time.monotonic() + patience
    opened = []
    try:
        for path in paths:
            # For reading: udev probes a disk again that was open for writing.
            opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            while True:
                try:
                    fcntl.flock(opened[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as exc:
                    if time.monotonic() > deadline:
                        raise WipeError(f"another program holds the lock of {path}; run again later", False) from exc
                    time.sleep(0.1)
        yield
    finally:
        for fd in opened:
            os.close(fd)


def _verify(tools: Tools, disks: Sequence[str], types: Sequence[str], patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        now = disk_facts.facts(disk_gather.read(tools, types, health=False), types)
        held = [disk for disk in now if disk["name"] in disks and disk["holds"]]
        missing = set(disks) - {disk["name"] for disk in now}
        if not held and not missing:
            return
        if time.monotonic() > deadline:
            rest = [f"{disk['name']}: {', '.join(disk_facts.held(disk))}" for disk in held]
            raise WipeError(
                "everything was erased, but the disks are not empty now: %s"
                % "; ".join(rest + [f"{name} has gone" for name in sorted(missing)]),
                True,
            )
        time.sleep(0.5)


def _carry_out(tools: Tools, step: wipe_plan.Step, patience: float) -> str:
    """Why a step failed; nothing when it did not. A device that is busy is tried again."""
    deadline = time.monotonic() + patience
    while True:
        reason = _once(tools, step)
        if not reason or step.optional or reason.endswith("is not there") or time.monotonic() > deadline:
            return reason
        time.sleep(0.3)


def _once(tools: Tools, step: wipe_plan.Step) -> str:
    if step.kind == "tool":
        code, out, err = tools(*step.argv, limit=300)
        return "" if code == 0 else " ".join((err or out).split())[:300] or f"exit code {code}"
    try:
        if step.kind == "exclusive":
            os.close(os.open(step.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        elif step.kind == "zero":
            zero_edges(step.path, step.size, step.first)
        elif step.kind == "forget":
            return _forget_partitions(tools, step.path)
    except OSError as exc:
        busy = exc.errno == errno.EBUSY
        return "it is in use by another program, mount or device" if busy else exc.strerror or str(exc)
    return ""


def zero_edges(path: str, size: int, first: int = disk_gather.EDGE) -> None:
    """Write zeros over the beginning and the last MiB, where tables, superblocks and labels lie."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        last = max(0, size - disk_gather.EDGE)
        for offset in list(range(0, min(first, last), disk_gather.EDGE)) + [last]:
            zeros = bytes(min(disk_gather.EDGE, size - offset))
            if 0 < offset < last and _is_zero(fd, zeros, offset):
                # A disk that stores what is written only keeps its room.
                continue
            left = memoryview(zeros)
            while left:
                written = os.pwrite(fd, left, offset)
                offset, left = offset + written, left[written:]
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_zero(fd: int, zeros: bytes, offset: int) -> bool:
    try:
        return os.pread(fd, len(zeros), offset) == zeros
    except OSError:
        # What cannot be read may be written yet.
        return False


def _forget_partitions(tools: Tools, path: str) -> str:
    """Make the kernel forget partitions that are no more; one by one, since not every kernel reads tables."""
    number = os.stat(path).st_rdev
    folder = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    reason = ""
    for entry in sorted(os.listdir(folder)):
        try:
            with open(os.path.join(folder, entry, "partition"), encoding="ascii") as file:
                place = file.read().strip()
        except OSError:
            continue
        code, _out, err = tools("delpart", path, place)
        if code != 0 and os.path.exists(os.path.join(folder, entry)):
            reason = f"partition {place}: {' '.join(err.split())}"
    return reason
