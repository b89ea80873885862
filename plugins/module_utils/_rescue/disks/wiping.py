# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The steps that empty disks, in their order, made from what is on them (pure).

What lies on top goes first: mounts and swap, then volume groups, encryption and RAID by how they are stacked, then the
content of the partitions, the partition tables at last. No step names a disk that is not to be emptied.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import time
from collections.abc import Iterator, Sequence

from ..._common import safe_files
from . import disk_facts, disk_gather, disk_names
from .disk_facts import Disk, Raw
from .disk_tools import Node, Tools

_WHY = {
    errno.EBUSY: "it is in use by another program, mount or device",
    errno.EIO: "Input/output error: bad sectors, or a broken disk or cable. Look at dmesg and smartctl in the rescue, "
    "and have the disk replaced",
}
_STACKED = re.compile(r"(raid[0-9]+|linear|container|md|lvm|crypt|dm)\Z")


class PlanError(ValueError):
    """The disks cannot be emptied by us; the text says why and what to do."""


class Step:
    """One step: a tool to call, or (``kind`` other than C(tool)) something that wiping.py does itself.

    ``optional``: a failure is no reason to stop, since a later step does the same more thoroughly.
    """

    def __init__(
        self,
        what: str,
        argv: Sequence[str] = (),
        kind: str = "tool",
        path: str = "",
        size: int = 0,
        optional: bool = False,
        first: int = disk_gather.EDGE,
    ) -> None:
        self.what, self.argv, self.kind = what, list(argv), kind
        self.path, self.size, self.optional = path, size, optional
        #: How much of the beginning is erased.
        self.first = first

    def __repr__(self) -> str:
        return f"<Step {self.what}>"


def plan(raw: Raw, disks: Sequence[str]) -> list[Step]:
    """The steps that empty the disks of these kernel names; ``raw``: disk_facts.Raw of now."""
    stack = _Stack(raw, disks)
    steps = stack.unmount() + stack.take_down()
    for name in disks:
        disk = raw.nodes[name]
        steps.append(Step(f"see that nothing else uses {disk.path}", kind="exclusive", path=disk.path))
    for name in disks:
        disk = raw.nodes[name]
        parts = [raw.nodes[child] for child in disk.children if raw.nodes[child].type == "part"]
        for node in list(reversed(parts)) + [disk]:
            steps.extend(_erase(raw, node, whole=node is disk))
        steps.append(Step(f"forget the partitions of {disk.path}", kind="forget", path=disk.path))
    return steps


class _Stack:
    """What lies on the disks, as things that are taken down as a whole."""

    def __init__(self, raw: Raw, disks: Sequence[str]) -> None:
        self._raw = raw
        self._nodes: list[Node] = []
        for name in disks:
            self._nodes += [node for node in raw.below(raw.nodes[name]) if node not in self._nodes]
        groups = {row.get("vg_name", "") for row in raw.pvs}
        self._unit: dict[str, tuple[str, str]] = {}
        for node in self._nodes:
            if node.type in ("disk", "part", "loop"):
                continue
            if not _STACKED.match(node.type):
                raise PlanError(
                    f"{', '.join(node.parents)} is used by {node.shown} ({node.type}), which cannot be taken down from "
                    "here; do that by hand and run again"
                )
            group = _volume_group(node.shown) if node.type == "lvm" else ""
            self._unit[node.name] = ("vg", group) if group and group in groups else ("node", node.name)

    def unmount(self) -> list[Step]:
        """Mounts, those on top first, and swap."""
        places: set[str] = set()
        steps = []
        for node in self._nodes:
            places.update(self._raw.places(node))
            if self._raw.is_swap(node):
                steps.append(Step(f"stop swapping on {node.path}", ["swapoff", node.path]))
        ordered = sorted(places, key=lambda place: (place.count("/"), len(place)), reverse=True)
        return [Step(f"unmount {place}", ["umount", "--recursive", place]) for place in ordered] + steps

    def take_down(self) -> list[Step]:
        """Volume groups, encryption and RAID, what lies on top first."""
        steps: list[Step] = []
        left = list(dict.fromkeys(self._unit[node.name] for node in self._nodes if node.name in self._unit))
        while left:
            free = [unit for unit in left if not any(above in left for above in self._above(unit))]
            if not free:
                raise PlanError(f"the devices {', '.join(name for _kind, name in left)} lie on each other in a ring")
            for unit in free:
                steps.extend(self._down(unit))
                left.remove(unit)
        return steps

    def _above(self, unit: tuple[str, str]) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for name in [node.name for node in self._nodes if self._unit.get(node.name) == unit]:
            for node in self._raw.below(self._raw.nodes[name]):
                if self._unit.get(node.name, unit) != unit:
                    found.add(self._unit[node.name])
        return found

    def _down(self, unit: tuple[str, str]) -> list[Step]:
        kind, name = unit
        if kind == "vg":
            return [Step(f"deactivate volume group {name}", ["lvm", "vgchange", "--activate", "n", name])]
        node = self._raw.nodes[name]
        # What was on it would come back with the next device that is made at the same place.
        inner = [self._raw.nodes[child] for child in node.children if self._raw.nodes[child].type == "part"]
        steps = [
            Step(f"erase the signatures on {one.path}", ["wipefs", "--all", "--force", one.path], optional=True)
            for one in inner + ([] if node.type == "lvm" else [node])
        ]
        if node.type == "crypt":
            return steps + [Step(f"close {node.path}", ["cryptsetup", "close", node.shown])]
        if node.type in ("lvm", "dm"):
            return steps + [Step(f"remove {node.path}", ["dmsetup", "remove", "--retry", node.shown])]
        return steps + [Step(f"stop RAID {node.path}", ["mdadm", "--stop", node.path])]


def _volume_group(shown: str) -> str:
    """The volume group in a device mapper's name: dashes within it are doubled."""
    return re.split(r"(?<!-)-(?!-)", shown)[0].replace("--", "-")


def _erase(raw: Raw, node: Node, whole: bool) -> list[Step]:
    if not node.size:
        return []
    steps = []
    if node.name in raw.md:
        # wipefs does it too, when mdadm is not there.
        argv = ["mdadm", "--zero-superblock", "--force", node.path]
        steps.append(Step(f"erase the RAID superblock of {node.path}", argv, optional=True))
    steps.append(Step(f"erase the signatures of {node.path}", ["wipefs", "--all", "--force", node.path]))
    # Where the first partitions began, so that nothing of them is found again.
    first = disk_gather.FIRST if whole else disk_gather.EDGE
    what = f"write zeros over the first {'65 ' if whole else ''}MiB and the last MiB of {node.path}"
    steps.append(Step(what, kind="zero", path=node.path, size=node.size, first=first))
    return steps


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
        text = (
            f"{disk_names.named(found[0])} does not hold any more what was found before; nothing was erased. Run again"
        )
        raise WipeError(text, False)
    return found[0]


def wipe(tools: Tools, disks: Sequence[str], types: Sequence[str] = ("disk",), patience: float = PATIENCE) -> list[str]:
    """Empty the disks of these kernel names; returns what was done, a line for each step."""
    raw = disk_gather.read(tools, types, health=False)
    gone = [name for name in disks if name not in raw.nodes]
    if gone:
        raise WipeError(f"disk {', '.join(gone)} is not there any more", False)
    try:
        steps = plan(raw, disks)
    except PlanError as exc:
        raise WipeError(str(exc), False) from exc
    with _locked([raw.nodes[name].path for name in disks], patience):
        done = _carry_out_all(tools, steps, patience)
    tools("udevadm", "settle", "--timeout=100")
    try:
        _verify(tools, disks, types, patience)
    except disk_gather.GatherError as exc:
        raise WipeError(f"everything was erased, but {exc}", True) from exc
    return done


def _carry_out_all(tools: Tools, steps: Sequence[Step], patience: float) -> list[str]:
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
    opened: list[int] = []
    try:
        for path in paths:
            _lock(path, opened, deadline)
        yield
    finally:
        for fd in opened:
            os.close(fd)


def _lock(path: str, opened: list[int], deadline: float) -> None:
    """Open a disk, which ``opened`` holds then, and take its lock; raises WipeError."""
    try:
        # For reading: udev probes a disk again that was open for writing.
        opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        locked = safe_files.lock(opened[-1], deadline - time.monotonic())
    except OSError as exc:
        raise WipeError(f"{path} cannot be locked: {exc.strerror}; nothing was erased", False) from exc
    if not locked:
        raise WipeError(f"another program holds the lock of {path}; run again later", False)


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
            rest += [f"{name} has gone" for name in sorted(missing)]
            raise WipeError(f"everything was erased, but the disks are not empty now: {'; '.join(rest)}", True)
        time.sleep(0.5)


def _carry_out(tools: Tools, step: Step, patience: float) -> str:
    """Why a step failed; nothing when it did not. A device that is busy is tried again."""
    deadline = time.monotonic() + patience
    while True:
        reason = _once(tools, step)
        if not reason or step.optional or reason.endswith("is not there") or time.monotonic() > deadline:
            return reason
        time.sleep(0.3)


def _once(tools: Tools, step: Step) -> str:
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
        return _WHY.get(exc.errno or 0) or exc.strerror or str(exc)
    return ""


def zero_edges(path: str, size: int, first: int = disk_gather.EDGE) -> None:
    """Erase the beginning and the last MiB, where tables, superblocks and labels lie; they read as zeros then."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        last = max(0, size - disk_gather.EDGE)
        for offset, end in ((0, min(first, last)), (last, size)):
            if offset < end and not _punched(fd, offset, end - offset):
                _write_zeros(fd, offset, end)
        os.fsync(fd)
    finally:
        os.close(fd)


#: FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
_PUNCH = 0x01 | 0x02


def _punched(fd: int, offset: int, length: int) -> bool:
    """Whether the disk itself has made zeros of it, in no time; the kernel asks that only of disks that can."""
    punch = ctypes.CDLL(None, use_errno=True).fallocate
    punch.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(punch(fd, _PUNCH, offset, length) == 0)


def _write_zeros(fd: int, start: int, end: int) -> None:
    for offset in range(start, end, disk_gather.EDGE):
        zeros = bytes(min(disk_gather.EDGE, end - offset))
        if start < offset and _is_zero(fd, zeros, offset):
            # A disk that stores what is written only keeps its room.
            continue
        left = memoryview(zeros)
        while left:
            written = os.pwrite(fd, left, offset)
            offset, left = offset + written, left[written:]


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
