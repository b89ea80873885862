# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The steps that empty disks, in their order, made from what is on them (pure).

What lies on top goes first: mounts and swap, then volume groups, encryption and RAID by how they are stacked, then the
content of the partitions, the partition tables at last. No step names a disk that is not to be emptied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import disk_gather
from .disk_facts import Raw
from .disk_tools import Node

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
        return "<Step %s>" % self.what


def plan(raw: Raw, disks: Sequence[str]) -> list[Step]:
    """The steps that empty the disks of these kernel names; ``raw``: disk_facts.Raw of now."""
    stack = _Stack(raw, disks)
    steps = stack.unmount() + stack.take_down()
    for name in disks:
        disk = raw.nodes[name]
        steps.append(Step("see that nothing else uses %s" % disk.path, kind="exclusive", path=disk.path))
    for name in disks:
        disk = raw.nodes[name]
        parts = [raw.nodes[child] for child in disk.children if raw.nodes[child].type == "part"]
        for node in list(reversed(parts)) + [disk]:
            steps.extend(_erase(raw, node, whole=node is disk))
        steps.append(Step("forget the partitions of %s" % disk.path, kind="forget", path=disk.path))
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
                    "%s is used by %s (%s), which cannot be taken down from here; do that by hand and run again"
                    % (", ".join(node.parents), node.shown, node.type)
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
                steps.append(Step("stop swapping on %s" % node.path, ["swapoff", node.path]))
        ordered = sorted(places, key=lambda place: (place.count("/"), len(place)), reverse=True)
        return [Step("unmount %s" % place, ["umount", "--recursive", place]) for place in ordered] + steps

    def take_down(self) -> list[Step]:
        """Volume groups, encryption and RAID, what lies on top first."""
        steps: list[Step] = []
        left = list(dict.fromkeys(self._unit[node.name] for node in self._nodes if node.name in self._unit))
        while left:
            free = [unit for unit in left if not any(above in left for above in self._above(unit))]
            if not free:
                raise PlanError("the devices %s lie on each other in a ring" % ", ".join(name for _kind, name in left))
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
            return [Step("deactivate volume group %s" % name, ["lvm", "vgchange", "--activate", "n", name])]
        node = self._raw.nodes[name]
        # What was on it would come back with the next device that is made at the same place.
        inner = [self._raw.nodes[child] for child in node.children if self._raw.nodes[child].type == "part"]
        steps = [
            Step("erase the signatures on %s" % one.path, ["wipefs", "--all", "--force", one.path], optional=True)
            for one in inner + ([] if node.type == "lvm" else [node])
        ]
        if node.type == "crypt":
            return steps + [Step("close %s" % node.path, ["cryptsetup", "close", node.shown])]
        if node.type in ("lvm", "dm"):
            return steps + [Step("remove %s" % node.path, ["dmsetup", "remove", "--retry", node.shown])]
        return steps + [Step("stop RAID %s" % node.path, ["mdadm", "--stop", node.path])]


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
        steps.append(Step("erase the RAID superblock of %s" % node.path, argv, optional=True))
    steps.append(Step("erase the signatures of %s" % node.path, ["wipefs", "--all", "--force", node.path]))
    if whole:
        argv = ["sgdisk", "--zap-all", node.path]
        steps.append(Step("erase the partition tables of %s" % node.path, argv, optional=True))
    # Where the first partitions began, so that nothing of them is found again.
    first = disk_gather.FIRST if whole else disk_gather.EDGE
    what = "write zeros over the first %sMiB and the last MiB of %s" % ("65 " if whole else "", node.path)
    steps.append(Step(what, kind="zero", path=node.path, size=node.size, first=first))
    return steps
