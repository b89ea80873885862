# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the rescue knows and the controller cannot: firmware, architecture, the disks as they are now."""

from __future__ import annotations

import os
import platform

from ..disks import facts, gather, names, table, wiping
from . import layout as layouts
from . import spec as specs
from .image import InvalidImageName, check_architecture, parse_image_name
from .tools import Refused, kill_below

#: Begins the path of the directory below which installimage mounts the new system.
WORKPLACE = "/installimage."


def is_uefi(sys="/sys"):
    """Whether the rescue was booted by UEFI: installimage makes the boot loader for what booted the rescue."""
    return os.path.isdir(os.path.join(sys, "firmware/efi"))


def find(names_given, tools):
    """The disks of these stable names now, as facts of machine_disks."""
    try:
        return names.resolve(names_given, gather.identities(tools))
    except names.Unresolved as error:
        raise Refused("root_devices: %s" % error, permanent=True) from None


def check_disks(chosen, tools, targets=()):
    """Refuse disks that hold anything, and other disks with LVM, as installimage removes every volume group.

    ``targets``: disks that will be emptied before; they must hold what was found when that was allowed.
    """
    wanted = {disk["name"] for disk in chosen}
    found = facts.facts(gather.read(tools, health=False))
    to_empty = _names(targets, found)
    for disk in [disk for disk in found if disk["name"] not in to_empty]:
        if disk["name"] in wanted:
            if disk["holds"]:
                raise Refused(
                    "root_devices: %s (%s) is not empty: %s. Nothing was written; machine_disks with state: ready "
                    "empties disks that its option wipe names (kubenode_wipe)"
                    % (disk["name"], names.identity(disk), "; ".join(table.held(disk)[:8])),
                    permanent=True,
                )
            continue
        if any(entry["kind"] == "lvm" for entry in disk["holds"]):
            raise Refused(
                "the disk %s (%s) is not among root_devices, but holds LVM (%s), and installimage removes every volume "
                "group of the machine. Nothing was written; empty that disk too (kubenode_wipe names it), or "
                "disconnect it" % (disk["name"], names.identity(disk), "; ".join(table.held(disk)[:8])),
                permanent=True,
            )


def _names(targets, disks):
    try:
        return [wiping.still(target, disks)["name"] for target in targets]
    except wiping.WipeError as error:
        raise Refused(str(error)) from None


def empty(targets, tools):
    """Empty the disks that the user's word covers; returns what was done. Raises :class:`Refused`."""
    disks = facts.facts(gather.read(tools, health=False))
    try:
        return wiping.wipe(tools, _names(targets, disks))
    except wiping.WipeError as error:
        raise Refused("the disks were not emptied: %s" % error) from None


def blank(chosen, tools):
    """Take down what is on the disks and erase it, as machine_disks does; raises :class:`Refused`."""
    kill_below(WORKPLACE)
    try:
        wiping.wipe(tools, [disk["name"] for disk in chosen])
    except (wiping.WipeError, gather.GatherError) as error:
        raise Refused(str(error)) from None


def check_spec(spec, uefi, sizes, machine=""):
    """Refuse a layout or an image that does not fit this machine; returns the layout."""
    name = spec["image"]["file_name"]
    try:
        check_architecture(name, machine or platform.machine())
    except InvalidImageName as error:
        raise Refused("image %s: %s" % (name, error), permanent=True) from None
    if spec["uefi"] != specs.AUTO and (spec["uefi"] == specs.YES) != uefi:
        modes = {True: "UEFI", False: "legacy mode"}
        raise Refused(
            "uefi %s: the rescue was booted in %s; switch the firmware (and its network boot) over, or set uefi: auto"
            % (spec["uefi"], modes[uefi]),
            permanent=True,
        )
    image = parse_image_name(name)
    layout = specs.layout_of(spec, uefi)
    findings = layouts.check_firmware(layout, uefi, image)
    findings += layouts.check_capacity(layout, sizes)
    if findings:
        raise Refused("; ".join(findings), permanent=True)
    return layout


def check_command(path):
    """Refuse a rescue without installimage."""
    if not os.access(path, os.X_OK):
        raise Refused(
            "there is no program %s in this rescue; installimage is on Robot's rescue only, so check that the machine "
            "is a dedicated server, or set command" % path,
            permanent=True,
        )
