# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads everything about the disks that the machine's tools report, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import disk_facts, disk_tools
from .disk_facts import Raw
from .disk_tools import Node, Speed, Tools

_COLUMNS = (
    "NAME,KNAME,PATH,MAJ:MIN,SIZE,RO,RM,ROTA,TRAN,TYPE,WWN,SERIAL,MODEL,FSTYPE,LABEL,UUID,PARTTYPE,PKNAME,LOG-SEC"
)
EDGE = 1 << 20
#: Where partitions begin: at the second track on old disks, else at any of the first MiB. Beyond the first 64 a first
#: partition is not expected.
STARTS = (63 * 512,) + tuple(number * EDGE for number in range(1, 65))
#: How much of a disk is erased, so that nothing is found there any more.
FIRST = STARTS[-1] + EDGE
#: What is read at each of these places to see whether it is blank: the farthest superblock, that of btrfs, is in it.
_GLANCE = 128 << 10
_LVM = ("--readonly", "--reportformat=json", "--units=b")


class GatherError(Exception):
    """The disks cannot be listed; the text says why."""


def block_devices(tools: Tools) -> str:
    """The text of lsblk, without which nothing can be said."""
    code, out, err = tools("lsblk", "--json", "--bytes", "--output", _COLUMNS)
    # 32: a device has gone while lsblk looked, 64: some were found.
    if code not in (0, 32, 64) or not out.strip():
        raise GatherError(f"lsblk does not list the disks (exit code {code}: {err.strip()})")
    return out


def identities(tools: Tools, types: Sequence[str] = ("disk",)) -> list[disk_facts.Identity]:
    """Name, size, WWN, serial number and links of every disk now, see disk_facts.identities(); fast."""
    return disk_facts.identities(_raw(block_devices(tools), **_links()), types)


def read(
    tools: Tools,
    types: Sequence[str] = ("disk",),
    health: bool = True,
    systems: Mapping[str, dict[str, str]] | None = None,
) -> Raw:
    """All that disk_facts.facts() is made of, as :class:`disk_facts.Raw`; ``systems``: see inside.look()."""
    listing = block_devices(tools)
    found = _raw(listing)
    more: dict[str, Any] = dict(
        _links(), blkid={}, wipefs={}, edges={}, lost={}, md={}, smart={}, nvme={}, systems=systems or {}
    )
    more["mountinfo"] = _text("/proc/self/mountinfo")
    more["swaps"] = _text("/proc/swaps")
    more["whole"] = {disk.name for disk in found.disks(types)}
    for disk in found.disks(types):
        for node in found.below(disk):
            if node.name not in more["blkid"] and node.size:
                _contents(tools, node, more)
        if health:
            _health(tools, disk, more)
    if tools.has("lvm"):
        more["pvs"] = tools("lvm", "pvs", *_LVM, "-o", "pv_name,vg_name,vg_uuid")[1]
        more["lvs"] = tools("lvm", "lvs", *_LVM, "-o", "vg_name,lv_name,lv_size,segtype")[1]
    return _raw(listing, **more)


def lost(tools: Tools, path: str, size: int) -> tuple[int, str] | None:
    """What still lies where partitions began, on a disk without a table: ``(offset, text of blkid)`` of the first.

    None when nothing does, and an empty text when the disk cannot be read there.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0, ""
    try:
        for offset in [start for start in STARTS if start < size]:
            block = os.pread(fd, min(_GLANCE, size - offset), offset)
            if block == block[:1] * len(block):
                continue
            code, out, _err = tools("blkid", "--probe", "--offset", str(offset), "--output", "export", path)
            if code == 8 or (code == 0 and disk_tools.tags(out).get("TYPE")):
                return offset, out
    except OSError:
        return 0, ""
    finally:
        os.close(fd)
    return None


def _raw(listing: str, **more: Any) -> Raw:
    try:
        return disk_facts.Raw(listing, **more)
    except disk_tools.ParseError as exc:
        raise GatherError(str(exc)) from exc


def _contents(tools: Tools, node: Node, more: dict[str, Any]) -> None:
    """What one device holds."""
    code, out, _err = tools("blkid", "--probe", "--output", "export", node.path)
    more["blkid"][node.name] = (code, out)
    more["wipefs"][node.name] = tools("wipefs", "--json", "--output", "TYPE,UUID,LABEL,USAGE", node.path)[1]
    tags = disk_tools.tags(out)
    if tags.get("TYPE", "").endswith("raid_member"):
        more["md"][node.name] = tools("mdadm", "--examine", "--export", node.path)[1]
    elif not tags.get("TYPE") and not tags.get("PTTYPE"):
        data = has_data(node.path, node.size)
        if data is not None:
            more["edges"][node.name] = data
        if data is False and node.name in more["whole"]:
            more["lost"][node.name] = lost(tools, node.path, node.size)


def _health(tools: Tools, disk: Node, more: dict[str, Any]) -> None:
    if not disk.size:
        return
    if tools.has("smartctl"):
        code, out, _err = tools("smartctl", "--health", "--json", disk.path)
        more["smart"][disk.name] = (code, out)
    if disk.name.startswith("nvme") and tools.has("nvme"):
        code, out, _err = tools("nvme", "smart-log", "--output-format=json", disk.path)
        more["nvme"][disk.name] = (code, out)


def read_speed(tools: Tools, path: str) -> Speed:
    """How fast a disk is read from its beginning, see parse.read_speed(); it takes three seconds and writes nothing."""
    if not tools.has("fio"):
        return {"speed": None, "failed": False, "detail": "fio is not there"}
    code, out, _err = tools(
        "fio", "--name=read", "--filename=" + path, "--readonly", "--rw=read", "--bs=128k", "--direct=1", "--runtime=3",
        "--time_based", "--output-format=json", limit=60,
    )  # fmt: skip
    return disk_tools.read_speed(code, out)


def has_data(path: str, size: int) -> bool | None:
    """Whether the first or the last MiB holds anything but one byte repeated; None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset in (0, max(0, size - EDGE)):
                block = os.pread(fd, min(EDGE, size), offset)
                if block != block[:1] * len(block):
                    return True
        finally:
            os.close(fd)
    except OSError:
        return None
    return False


def _links() -> dict[str, dict[str, str]]:
    return {"by_id": _targets("/dev/disk/by-id"), "by_path": _targets("/dev/disk/by-path")}


def _targets(folder: str) -> dict[str, str]:
    found = {}
    try:
        for link in os.listdir(folder):
            found[link] = os.path.basename(os.path.realpath(os.path.join(folder, link)))
    except OSError:
        pass
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
