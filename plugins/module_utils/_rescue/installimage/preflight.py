# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the rescue knows and the controller cannot: firmware, architecture, the disks as they are now."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence

from ..disks import disk_facts, disk_gather, disk_names, wiping
from ..disks.disk_facts import Disk, Identity, Raw
from ..disks.disk_tools import Tools
from . import layout as layouts
from . import spec as specs
from .config_words import InvalidImageName, check_architecture, parse_image_name
from .layout import Layout
from .processes import Refused, kill_below

#: Begins the path of the directory below which installimage mounts the new system.
WORKPLACE = "/installimage."


def is_uefi() -> bool:
    """Whether the rescue was booted by UEFI: installimage makes the boot loader for what booted the rescue."""
    return os.path.isdir("/sys/firmware/efi")


def find(names_given: Sequence[str], tools: Tools) -> list[Identity]:
    """The disks of these stable names now, as facts of machine_disks."""
    try:
        return disk_names.resolve(names_given, disk_gather.identities(tools))
    except disk_names.Unresolved as error:
        raise Refused(f"root_devices: {error}", permanent=True) from None


def check_disks(chosen: Sequence[Identity], tools: Tools, layout: Layout, targets: Sequence[Disk] = ()) -> list[str]:
    """Refuse disks that hold anything; returns the names of the volume groups of other disks, which are to be kept.

    ``targets``: disks that will be emptied before; they must hold what was found when that was allowed.
    """
    wanted = {disk["name"] for disk in chosen}
    raw = disk_gather.read(tools, health=False)
    found = disk_facts.facts(raw)
    to_empty = _still(targets, found)
    for disk in [disk for disk in found if disk["name"] in wanted and disk["name"] not in to_empty]:
        if disk["holds"]:
            raise Refused(
                f"root_devices: {disk['name']} ({disk_names.identity(disk)}) is not empty: "
                f"{'; '.join(disk_facts.held(disk)[:8])}. Nothing was written; machine_disks with state: ready "
                "empties disks that its option wipe names (kubenode_wipe)",
                permanent=True,
            )
    return _groups_to_keep(raw, wanted | set(to_empty), layout) if layout.groups() else []


#: What a name of a volume group may be, and what the other columns of vgs may hold.
_GROUP, _COLUMN = re.compile(r"[A-Za-z0-9+_.-]+\Z"), re.compile(r"[0-9.]+[a-z]?\Z|[wzn-]{1,6}\Z")


def _groups_to_keep(raw: Raw, gone: set[str], layout: Layout) -> list[str]:
    """The volume groups of disks that are not installed on: a layout with LVM removes every group that is not kept."""
    if not raw.has_lvm and any(
        one["type"] == "LVM2_member" for node in raw.nodes.values() for one in disk_facts.contents(raw, node)
    ):
        raise _of_lvm("lvm2 is not in this rescue, so nothing can be said of the physical volumes there are")
    groups: dict[str, set[str]] = {}
    for group, device, disks in disk_facts.volume_groups(raw):
        if not group and not (disks and gone.issuperset(disks)):
            raise _of_lvm(f"{device} is a physical volume of no volume group, and would be erased")
        groups.setdefault(group, set()).update(disks)
    kept = sorted(group for group, disks in groups.items() if group and not (disks and gone.issuperset(disks)))
    for group in kept:
        if gone.intersection(groups[group]):
            raise _of_lvm(
                f"volume group {group} lies on {', '.join(sorted(groups[group]))}, and not all of them are installed "
                "on or emptied"
            )
        if not _GROUP.match(group):
            raise _of_lvm(f"volume group {group!r} has a name that no expression for installimage can hold")
    for new in layout.groups():
        # vgs prints a line a group, in which installimage looks for the new name.
        like = [one for one in kept if re.search(re.escape(new).replace("\\.", "."), one)]
        if like or (kept and _COLUMN.match(new)):
            raise Refused(
                f"partitions: the new volume group {new} is called like {like[0] if like else 'a column of vgs'}, "
                "which is on other disks and is kept, and "
                "installimage would mix them up. Nothing was written; choose another name",
                permanent=True,
            )
    return kept


def _of_lvm(why: str) -> Refused:
    return Refused(
        f"{why}. A layout with LVM lets installimage remove every volume group and physical volume that cannot be kept "
        "by its name. Nothing was written; empty that disk too (kubenode_wipe names it), disconnect it, or use a "
        "layout without LVM",
        permanent=True,
    )


def still(targets: Sequence[Disk], tools: Tools) -> list[str]:
    """The kernel names of the disks that the user's word covers; raises :class:`Refused` if one has changed."""
    return _still(targets, disk_facts.facts(disk_gather.read(tools, health=False)))


def _still(targets: Sequence[Disk], disks: Sequence[Disk]) -> list[str]:
    try:
        return [wiping.still(target, disks)["name"] for target in targets]
    except wiping.WipeError as error:
        raise Refused(str(error)) from None


def empty(names: Sequence[str], tools: Tools) -> list[str]:
    """Empty the disks of these kernel names; returns what was done. Raises :class:`Refused`."""
    try:
        return wiping.wipe(tools, names)
    except wiping.WipeError as error:
        raise Refused(f"the disks were not emptied: {error}") from None


def blank(names_given: Sequence[str], tools: Tools) -> None:
    """Take down what is on the disks of these stable names and erase it; raises :class:`Refused`.

    A disk that went away and came back may be called otherwise by now, and another one as it was.
    """
    kill_below(WORKPLACE)
    try:
        wiping.wipe(tools, [disk["name"] for disk in find(names_given, tools)])
    except (wiping.WipeError, disk_gather.GatherError) as error:
        raise Refused(str(error)) from None


def check_spec(spec: specs.Spec, uefi: bool, sizes: Sequence[int], machine: str = "") -> Layout:
    """Refuse a layout or an image that does not fit this machine; returns the layout."""
    name = spec["image"]["file_name"]
    try:
        check_architecture(name, machine or platform.machine())
    except InvalidImageName as error:
        raise Refused(f"image {name}: {error}", permanent=True) from None
    if spec["uefi"] != specs.AUTO and (spec["uefi"] == specs.YES) != uefi:
        modes = {True: "UEFI", False: "legacy mode"}
        raise Refused(
            f"uefi {spec['uefi']}: the rescue was booted in {modes[uefi]}; switch the firmware (and its network "
            "boot) over, or set uefi: auto",
            permanent=True,
        )
    image = parse_image_name(name)
    layout = specs.layout_of(spec, uefi)
    findings = layouts.check_firmware(layout, uefi, image)
    findings += layouts.check_capacity(layout, sizes)
    if findings:
        raise Refused("; ".join(findings), permanent=True)
    return layout


def check_command(path: str) -> None:
    """Refuse a rescue without installimage."""
    if not os.access(path, os.X_OK):
        raise Refused(
            f"there is no program {path} in this rescue; installimage is on Robot's rescue only, so check that the "
            "machine is a dedicated server, or set command",
            permanent=True,
        )
