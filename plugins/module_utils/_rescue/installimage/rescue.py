# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the rescue knows and the controller cannot: firmware, architecture, the disks as they are now."""

from __future__ import annotations

import json
import os
import platform

from . import layout as layouts
from . import spec as specs
from .image import InvalidImageName, check_architecture, parse_image_name
from .tools import ABSENT, Refused, run

COLUMNS = "NAME,KNAME,PATH,TYPE,FSTYPE,SIZE,MODEL,SERIAL"


def is_uefi(sys="/sys"):
    """Whether the rescue was booted by UEFI: installimage makes the boot loader for what booted the rescue."""
    return os.path.isdir(os.path.join(sys, "firmware/efi"))


def tree(drives=()):
    """Block devices and what is on top of them, as lsblk tells it."""
    code, out, err = run(["lsblk", "--json", "--bytes", "--output", COLUMNS] + list(drives))
    if code != 0:
        raise Refused("lsblk failed in the rescue: %s" % (err.strip() or code))
    return json.loads(out)["blockdevices"]


def walk(nodes):
    """Every node below, those on top first."""
    for node in nodes:
        yield from walk(node.get("children") or ())
        yield node


def check_drives(drives):
    """Refuse disks that hold anything; returns their sizes in bytes."""
    sizes = []
    for node in tree(drives):
        path = node["path"]
        if node["type"] not in ("disk", "loop"):
            raise Refused("root_devices: %s is no disk but a %s; name the whole disk" % (path, node["type"]), True)
        held = [
            "%s %s" % (inner["path"], inner["fstype"] or inner["type"]) for inner in walk(node.get("children") or ())
        ]
        held += ["%s on the disk itself" % one for one in signatures(path)]
        if held:
            raise Refused(
                "root_devices: %s is not empty (%s); nothing was written. machine_disks with state: ready empties "
                "disks that its option wipe names" % (path, ", ".join(held[:8])),
                permanent=True,
            )
        sizes.append(int(node["size"]))
    if len(sizes) != len(drives):
        raise Refused("root_devices: lsblk shows %d of %d disks" % (len(sizes), len(drives)))
    return sizes


def signatures(path):
    """What wipefs finds on a device: partition tables, file systems, RAID and LVM members."""
    code, out, err = run(["wipefs", "--no-act", "--json", path])
    if code != 0:
        raise Refused("%s cannot be read: %s" % (path, err.strip() or "wipefs ended with %s" % code))
    return [one["type"] for one in json.loads(out)["signatures"]] if out.strip() else []


def check_others(drives):
    """Refuse to go on when other disks hold LVM, as installimage removes every volume group of the machine."""
    for node in tree():
        if node["type"] != "disk" or node["path"] in drives:
            continue
        held = [inner["path"] for inner in walk([node]) if inner["fstype"] == "LVM2_member"]
        if held:
            raise Refused(
                "the disk %s (%s) is not among root_devices, but holds LVM (%s), and installimage removes every volume "
                "group of the machine; empty that disk too by wipe of machine_disks, or disconnect it"
                % (node["path"], " ".join(filter(None, [node["model"], node["serial"]])) or "no name", held[0]),
                permanent=True,
            )


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
    findings = layouts.check_firmware(layout, uefi, image.distro, image.version)
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
    if run(["wipefs", "--version"])[0] == ABSENT:
        raise Refused("the rescue lacks wipefs (util-linux)", permanent=True)
