# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Facts of every disk, made from what the machine's tools printed, and the same in words for people (pure)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..._common import installed
from ..._common.text import in_columns, is_digits, json_value
from . import disk_tools
from .disk_tools import Content, Health, Node

#: Devices of type "disk" that are none: memory, network, the rescue's own.
_NO_DISKS = re.compile(r"(zram|ram|nbd|rbd|drbd|fd|sr|md|dm-|bcache|zd)[0-9]")
_GPT_ROLES = {
    "c12a7328-f81f-11d2-ba4b-00a0c93ec93b": "EFI system partition",
    "21686148-6449-6e6f-744e-656564454649": "BIOS boot partition",
    "e3c9e316-0b5c-4db8-817d-f92df00215ae": "Microsoft reserved partition",
}
_EXTENDED = ("0x5", "0xf", "0x85")

#: The usage of what lies on a disk in no partition.
LOST = "lost"

TABLE, FILESYSTEM, RAID, LVM, CRYPT, SWAP, SYSTEM, UNKNOWN = (
    "table",
    "filesystem",
    "raid",
    "lvm",
    "crypt",
    "swap",
    "system",
    "unknown",
)


class _Always(TypedDict):
    kind: str
    device: str
    type: str
    label: str
    uuid: str
    detail: str
    disks: list[str]
    mounts: list[str]
    in_use: bool


class Held(_Always, total=False):
    """One thing that a disk holds. ``disks``: the names of all disks that it spans.

    ``system`` and ``installed`` (the installed record) are there for the root file system of a system alone.
    """

    system: str
    installed: dict[str, str]


class Identity(TypedDict):
    """What a disk is, without its content; ``size`` in bytes."""

    name: str
    path: str
    size: int
    wwn: str
    serial: str
    model: str
    by_id: list[str]
    by_path: str
    kind: str
    rotational: bool
    read_only: bool
    removable: bool


class Disk(Identity):
    """All facts of a disk; ``content_id`` is another one as soon as something else is on it."""

    health: Health
    holds: list[Held]
    content_id: str


class Raw:
    """What was read on the machine by disk_gather.py. Every mapping is by kernel name; what was not read is absent."""

    def __init__(self, lsblk: str, **more: Any) -> None:
        self.nodes = disk_tools.block_devices(lsblk)
        #: ``blkid --probe`` (exit code, text), ``wipefs --json``, whether the first or last MiB holds data
        self.blkid = more.get("blkid", {})
        self.wipefs = more.get("wipefs", {})
        self.edges = more.get("edges", {})
        #: what lies where partitions began, on disks without a table, see gather.lost()
        self.lost = more.get("lost", {})
        #: link name → kernel name
        self.by_id = disk_tools.links(more.get("by_id", {}))
        self.by_path = disk_tools.links(more.get("by_path", {}))
        #: ``mdadm --examine --export`` of members
        self.md = {name: disk_tools.tags(text) for name, text in more.get("md", {}).items()}
        self.has_lvm = "pvs" in more
        self.pvs = disk_tools.report(more.get("pvs", ""), "pv")
        self.lvs = disk_tools.report(more.get("lvs", ""), "lv")
        #: (exit code, text)
        self.smart = more.get("smart", {})
        self.nvme = more.get("nvme", {})
        self.mounts = disk_tools.mount_points(more.get("mountinfo", ""))
        self.swaps = disk_tools.swaps(more.get("swaps", ""))
        #: ``{"system": name, "record": text}``, see inside.py
        self.systems = more.get("systems", {})

    def places(self, node: Node) -> list[str]:
        """Where a device is mounted."""
        found = (
            self.mounts.get(node.number, []) + self.mounts.get(node.path, []) + self.mounts.get("/dev/" + node.name, [])
        )
        return sorted(set(found))

    def is_swap(self, node: Node) -> bool:
        """Whether the machine swaps on a device now."""
        return node.path in self.swaps or "/dev/" + node.name in self.swaps

    def disks(self, types: Sequence[str] = ("disk",)) -> list[Node]:
        """The whole disks, in the order of their names."""
        found = [node for node in self.nodes.values() if node.type in types and not _NO_DISKS.match(node.name)]
        return sorted(found, key=lambda node: (len(node.name), node.name))

    def below(self, node: Node) -> list[Node]:
        """The device and everything that lies on it, each once, what lies below first."""
        order, todo = [], [node.name]
        while todo:
            name = todo.pop(0)
            if name not in order:
                order.append(name)
                todo.extend(self.nodes[name].children)
        return [self.nodes[name] for name in order]


def identities(raw: Raw, types: Sequence[str] = ("disk",)) -> list[Identity]:
    """The identity of each disk: ``name, path, size, wwn, serial, model, by_id, by_path, kind, rotational``, and
    ``read_only``, ``removable``. Without what they hold."""
    return [_identity(raw, node) for node in raw.disks(types)]


def facts(raw: Raw, types: Sequence[str] = ("disk",)) -> list[Disk]:
    """All facts of all disks; see the RETURN section of machine_disks."""
    groups = Groups(raw, types)
    found: list[Disk] = []
    for node in raw.disks(types):
        found.append(
            {
                **_identity(raw, node),
                "health": _health(raw, node),
                "holds": _holds(raw, node, groups),
                "content_id": content_id(raw, node),
            }
        )
    return found


def volume_groups(raw: Raw) -> list[tuple[str, str, list[str]]]:
    """Every physical volume that LVM itself sees: ``(group or "", device, names of the disks below it)``."""
    below = {disk.name: raw.below(disk) for disk in raw.disks()}
    found = []
    for row in raw.pvs:
        path = row.get("pv_name", "")
        disks = [name for name, nodes in below.items() if any(path in (one.path, "/dev/" + one.name) for one in nodes)]
        found.append((row.get("vg_name") or "", disk_tools.clean(path), disks))
    return found


def content_id(raw: Raw, disk: Node) -> str:
    """A digest of what is on the disk and its partitions, in order to notice that it is not the same any more."""
    seen = []
    for node in raw.below(disk):
        if node is disk or (node.type == "part" and disk.name in node.parents):
            kinds = [(one["type"], one["uuid"], one["label"]) for one in contents(raw, node)]
            seen.append((node.name[len(disk.name) :], node.size, sorted(kinds)))
    return hashlib.sha256(json.dumps(sorted(seen)).encode("utf-8")).hexdigest()


def _identity(raw: Raw, node: Node) -> Identity:
    tran = node.text("tran").lower()
    removable = disk_tools.flag(node.fields.get("rm")) or tran == "usb"
    return {
        "name": node.name,
        "path": node.path,
        "size": node.size,
        "wwn": node.text("wwn"),
        "serial": node.text("serial"),
        "model": node.text("model"),
        "by_id": sorted(raw.by_id.get(node.name, []), key=_preference),
        "by_path": (raw.by_path.get(node.name) or [""])[0],
        "kind": _kind(node.name, tran),
        "rotational": disk_tools.flag(node.fields.get("rota")),
        "read_only": disk_tools.flag(node.fields.get("ro")),
        "removable": removable,
    }


def _preference(link: str) -> tuple[bool, bool, int, str]:
    """Links that people can read come first, then those that are sure to be the disk's own."""
    unlike = link.startswith(("wwn-", "nvme-eui.", "nvme-uuid.", "nvme-nvme.", "scsi-3", "scsi-0", "scsi-1"))
    # newer versions of udev add the name space's number at the end
    return (unlike, link.startswith("scsi-"), len(link), link)


def _kind(name: str, tran: str) -> str:
    if name.startswith("nvme") or tran == "nvme":
        return "nvme"
    if name.startswith("vd") or tran == "virtio":
        return "virtio"
    if tran in ("sata", "ata"):
        return "sata"
    return "usb" if tran == "usb" else "scsi"


def _health(raw: Raw, node: Node) -> Health:
    found: Health = {"status": "unknown", "detail": "smartctl is not there"}
    if node.name in raw.smart:
        found = disk_tools.smart(*raw.smart[node.name])
    if found["status"] == "unknown" and node.name in raw.nvme:
        by_nvme = disk_tools.nvme_log(*raw.nvme[node.name])
        found = by_nvme if by_nvme["status"] != "unknown" else found
    return found


class Groups:
    """Which disks are bound together, by RAID, volume group, multi-device file system or a device over both."""

    def __init__(self, raw: Raw, types: Sequence[str]) -> None:
        self._raw = raw
        self._disks = {disk.name: {node.name for node in raw.below(disk)} for disk in raw.disks(types)}
        self._members: dict[tuple[str, ...], set[str]] = {}
        self._names: dict[tuple[str, ...], list[str]] = {}
        self._pvs = {row.get("pv_name", ""): row for row in raw.pvs}
        for node in raw.nodes.values():
            for key in self._keys(node):
                self._members.setdefault(key, set()).update(self._roots(node))
                self._names.setdefault(key, []).append(node.name)

    def disks(self, node: Node) -> list[str]:
        """The names of all disks that the content of this device spans."""
        found = self._roots(node)
        for key in self._keys(node):
            found |= self._members[key]
        return sorted(found, key=lambda name: (len(name), name))

    def members(self, node: Node) -> list[str]:
        """The names of all devices that belong together with this one."""
        return sorted({name for key in self._keys(node) for name in self._names[key]})

    def _roots(self, node: Node) -> set[str]:
        return {disk for disk, below in self._disks.items() if node.name in below}

    def volume_group(self, node: Node) -> tuple[str, str]:
        """UUID and name of the volume group of a physical volume."""
        row = self._pvs.get(node.path) or self._pvs.get("/dev/" + node.name) or {}
        return row.get("vg_uuid", ""), row.get("vg_name", "")

    def _keys(self, node: Node) -> list[tuple[str, ...]]:
        keys: list[tuple[str, ...]] = []
        for one in contents(self._raw, node):
            kind = one["type"]
            if one["usage"] == LOST:
                continue
            if kind == "LVM2_member":
                group = self.volume_group(node)
                if any(group):
                    keys.append(("lvm",) + group)
                elif not self._raw.has_lvm:
                    keys.append(("lvm", "unknown"))
            elif kind == "linux_raid_member" or kind in ("btrfs", "zfs_member", "bcachefs") or one["usage"] == "raid":
                keys.append((kind, one["uuid"] or "unknown"))
        return keys


def contents(raw: Raw, node: Node) -> list[Content]:
    """Every kind of content of one device: ``{type, uuid, label, usage, version}``; partition tables have usage
    ``table``."""
    code, text = raw.blkid.get(node.name, (None, ""))
    tags = disk_tools.tags(text)
    found: list[Content] = []
    if tags.get("TYPE"):
        label = tags.get("LABEL") or tags.get("PART_ENTRY_NAME", "") if tags["TYPE"] != "linux_raid_member" else ""
        label = label or tags.get("LABEL", "")
        found.append(
            _content(tags["TYPE"], tags.get("UUID", ""), label, tags.get("USAGE", ""), tags.get("VERSION", ""))
        )
    if tags.get("PTTYPE"):
        found.append(_content(tags["PTTYPE"], tags.get("PTUUID", ""), usage="table"))
    known = {one["type"] for one in found}
    for one in disk_tools.signatures(raw.wipefs.get(node.name, "")):
        if one["type"] in ("PMBR", "gpt", "dos", "sun", "sgi", "bsd", "mac") or one["usage"] == "partition-table":
            # What a boot sector's mark alone says is no table beside a file system that has one too.
            if one["type"] not in known and not (known and one["type"] in ("dos", "PMBR")):
                found.append(_content(one["type"], one["uuid"], usage="table"))
        elif one["type"] not in known:
            found.append(_content(one["type"], one["uuid"], one["label"], one["usage"]))
        known.add(one["type"])
    if not found and raw.lost.get(node.name):
        offset, text = raw.lost[node.name]
        tags = disk_tools.tags(text)
        if tags.get("TYPE"):
            place = f"{offset >> 20} MiB" if offset >> 20 else f"{offset >> 10} KiB"
            found.append(_content(tags["TYPE"], tags.get("UUID", ""), tags.get("LABEL", ""), LOST, place))
    if not found and code not in (0, 2) and node.text("fstype"):
        found.append(_content(node.text("fstype"), node.text("uuid"), node.text("label")))
    return found


def _content(kind: str, uuid: str, label: str = "", usage: str = "", version: str = "") -> Content:
    return {"type": kind, "uuid": uuid, "label": label, "usage": usage, "version": version}


def _holds(raw: Raw, disk: Node, groups: Groups) -> list[Held]:
    entries: list[Held] = []
    for node in raw.below(disk):
        known = [one for one in contents(raw, node) if not _is_frame(raw, node, one)]
        entries.extend(_entry(raw, node, one, groups) for one in known)
        if not known:
            entries.extend(_of_unknown(raw, node, disk, groups))
    return entries


def _is_frame(raw: Raw, node: Node, one: Content) -> bool:
    """Whether it is the table of an extended partition, which its disk's table lists already."""
    return one["usage"] == "table" and node.type == "part" and _part_type(raw, node) in _EXTENDED


def _part_type(raw: Raw, node: Node) -> str:
    tags = disk_tools.tags(raw.blkid.get(node.name, (None, ""))[1])
    return (tags.get("PART_ENTRY_TYPE") or node.text("parttype")).lower()


def _of_unknown(raw: Raw, node: Node, disk: Node, groups: Groups) -> list[Held]:
    """What is to say of a device on which nothing known was found."""
    role = _GPT_ROLES.get(_part_type(raw, node), "")
    if role:
        return [_make(raw, node, UNKNOWN, "", groups, detail=role)]
    if raw.edges.get(node.name):
        return [_make(raw, node, UNKNOWN, "", groups, detail="data of an unknown kind")]
    inner = [raw.nodes[name] for name in node.children if raw.nodes[name].type != "part"]
    if inner or raw.places(node) or raw.is_swap(node):
        detail = f"in use by {', '.join(one.shown for one in inner)}" if inner else "in use"
        return [_make(raw, node, UNKNOWN, "", groups, detail=detail)]
    framed = any(_is_frame(raw, node, one) for one in contents(raw, node))
    if node.size and not framed and (raw.edges.get(node.name) is None or raw.lost.get(node.name)):
        return [_make(raw, node, UNKNOWN, "", groups, detail="it cannot be read, so what it holds is unknown")]
    return []


def _make(
    raw: Raw, node: Node, kind: str, kind_of: str, groups: Groups, uuid: str = "", label: str = "", detail: str = ""
) -> Held:
    places = raw.places(node)
    return {
        "kind": kind,
        "device": node.shown,
        "type": kind_of,
        "label": label,
        "uuid": uuid,
        "detail": detail,
        "disks": groups.disks(node),
        "mounts": [disk_tools.clean(place, 500) for place in places],
        "in_use": bool(places) or raw.is_swap(node),
    }


def _entry(raw: Raw, node: Node, one: Content, groups: Groups) -> Held:
    kind, detail = _classify(raw, node, one, groups)
    entry = _make(raw, node, kind, one["type"], groups, one["uuid"], one["label"], detail)
    inside = raw.systems.get(node.name)
    if inside and kind == FILESYSTEM:
        system, record = disk_tools.clean(inside.get("system")), record_of(inside.get("record"))
        if system or record:
            entry["kind"] = SYSTEM
            entry["system"] = system or "unknown system"
        if record:
            entry["installed"] = record
    return entry


def record_of(text: str | None) -> dict[str, str] | None:
    """The installed record in a file's text, its known keys alone; None when it is none."""
    try:
        content = json_value(text or "")
        found = {key: disk_tools.clean(content[key], 2000) for key in installed.KEYS if content.get(key) is not None}
    except (ValueError, TypeError, AttributeError):
        return None
    return found if found.get("machine") else None


def _classify(raw: Raw, node: Node, one: Content, groups: Groups) -> tuple[str, str]:
    kind, usage = one["type"], one["usage"]
    if usage == LOST:
        return UNKNOWN, f"at {one['version']}, in no partition: a partition table may be lost"
    if usage == "table":
        parts = [raw.nodes[name] for name in node.children if raw.nodes[name].type == "part"]
        return TABLE, f"{len(parts)} partition{'' if len(parts) == 1 else 's'}"
    if kind == "LVM2_member":
        return LVM, _of_physical_volume(raw, node, groups)
    if kind in ("zfs_member", "btrfs", "bcachefs"):
        others = groups.members(node)
        return FILESYSTEM, f"over {', '.join(others)}" if len(others) > 1 or kind == "zfs_member" else ""
    if kind == "linux_raid_member" or usage == "raid":
        return RAID, _of_raid_member(raw, node, groups)
    if kind in ("crypto_LUKS", "BitLocker") or usage == "crypto":
        return CRYPT, f"version {one['version']}" if one["version"] else ""
    if kind in ("swap", "swsuspend"):
        return SWAP, ""
    if usage in ("filesystem", "") or usage is None:
        return FILESYSTEM, _GPT_ROLES.get(_part_type(raw, node), "")
    return UNKNOWN, usage


def _of_physical_volume(raw: Raw, node: Node, groups: Groups) -> str:
    name = groups.volume_group(node)[1]
    if not name:
        return "physical volume of no volume group" if raw.has_lvm else "physical volume; lvm2 is not there"
    volumes = [row["lv_name"] for row in raw.lvs if row.get("vg_name") == name and row.get("lv_name")]
    return f"volume group {name} ({', '.join(volumes[:20]) or 'no volumes'})"


def _of_raid_member(raw: Raw, node: Node, groups: Groups) -> str:
    tags = raw.md.get(node.name, {})
    level = tags.get("MD_LEVEL", "RAID")
    level = f"RAID{level[4:]}" if re.match(r"raid[0-9]+\Z", level) else level
    here = groups.members(node)
    total = tags.get("MD_DEVICES", "")
    counted = f" ({len(here)} of {total})" if is_digits(total) else ""
    return f"{level} over {', '.join(here)}{counted}"


def candidates(disks: Sequence[Disk], reasons: Mapping[str, str]) -> str:
    """A small table of all disks and why each one was chosen or not, as text."""
    rows: list[tuple[str, ...]] = [("disk", "size", "kind", "model", "serial", "wwn", "")]
    for disk in disks:
        rows.append(_about(disk) + (reasons.get(disk["name"], ""),))
    return "\n".join(in_columns(rows)) if disks else "(the machine has no disks)"


def disk_lines(disks: Sequence[Disk]) -> list[str]:
    """The table of all disks, for people who look for hints."""
    rows: list[tuple[str, ...]] = [("disk", "size", "kind", "model", "serial", "wwn", "health", "holds")]
    for disk in disks:
        held = "; ".join(phrase(entry) for entry in disk["holds"]) or "nothing"
        rows.append(_about(disk) + (disk["health"]["status"], held))
    return in_columns(rows)


def _about(disk: Disk) -> tuple[str, ...]:
    return (
        disk["name"],
        disk_tools.size_words(disk["size"]),
        kind_words(disk),
        disk["model"] or "-",
        disk["serial"] or "-",
        disk["wwn"] or "-",
    )


def kind_words(disk: Disk) -> str:
    """What kind of disk it is."""
    return disk["kind"] + (" (turning)" if disk["rotational"] else "")


def phrase(entry: Held) -> str:
    """One thing that a disk holds, in a few words."""
    words = [entry["device"] + ":"]
    if entry["kind"] == "system":
        words.append(entry["system"])
        if entry.get("installed"):
            words.append(f"(installed as {entry['installed']['machine']})")
        words.append("on")
    kinds = {"table": "partition table", "lvm": "LVM", "raid": "RAID member", "crypt": "encrypted", "swap": "swap"}
    if entry["kind"] in kinds:
        words.append(kinds[entry["kind"]])
    if entry["type"] and entry["kind"] not in ("lvm", "raid", "swap"):
        words.append(entry["type"])
    if entry["label"]:
        words.append(f"{entry['label']!r}")
    if entry["detail"]:
        words.append(f"({entry['detail']})" if len(words) > 1 else entry["detail"])
    if entry["mounts"]:
        words.append(f"mounted on {', '.join(entry['mounts'])}")
    return " ".join(words)


def held(disk: Disk) -> list[str]:
    """What a disk holds, a line each; a line that says so when it holds nothing."""
    return [phrase(entry) for entry in disk["holds"]] or ["nothing"]
