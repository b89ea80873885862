# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""From stable names of disks to the names that the kernel gives them in this boot, and back (pure).

``disks`` are facts as disk_facts.identities() makes them: ``wwn``, ``serial``, ``by_id``, ``name`` count here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from . import disk_tools
from .disk_facts import Identity

#: Facts in, the same facts out: of the disk alone, or with what it holds.
AnyDisk = TypeVar("AnyDisk", bound=Identity)
_BY_ID = "/dev/disk/by-id/"
_KERNEL = re.compile(r"(/dev/)?((sd|vd|hd|xvd)[a-z]+|nvme[0-9]+n[0-9]+|mmcblk[0-9]+)\Z")


class Unresolved(ValueError):
    """A name leads to no disk, or to several; the text says which and what is there."""


def is_kernel_name(text: str) -> bool:
    """Whether it is a name like C(sda), which may mean another disk after the next boot."""
    return bool(_KERNEL.match(text))


def wwns(disk: Identity) -> set[str]:
    """Every WWN of a disk, in the form in which they are compared."""
    found = {disk_tools.plain_wwn(disk["wwn"])}
    for link in disk["by_id"]:
        if link.startswith(("wwn-", "nvme-eui.", "nvme-uuid.", "nvme-nvme.")):
            found.add(disk_tools.plain_wwn(link))
    return found - {""}


def by_wwn(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of this WWN: with or without C(0x), C(eui.) and the like, in upper or lower case."""
    wanted = disk_tools.plain_wwn(text)
    return [disk for disk in disks if wanted and wanted in wwns(disk)]


def by_serial(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of this serial number; case counts."""
    return [disk for disk in disks if text.strip() and disk["serial"] == text.strip()]


def by_link(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of this name below C(/dev/disk/by-id), with or without the directory."""
    wanted = text[len(_BY_ID) :] if text.startswith(_BY_ID) else text
    return [disk for disk in disks if wanted in disk["by_id"]]


def find(text: str, disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """Every disk that the name may mean: a WWN, a serial number or a name below C(/dev/disk/by-id)."""
    found: list[AnyDisk] = []
    for matching in (by_wwn(text, disks), by_serial(text, disks), by_link(text, disks)):
        found.extend(disk for disk in matching if disk not in found)
    return found


def one(text: str, disks: Sequence[AnyDisk]) -> AnyDisk:
    """The only disk of this name; raises :class:`Unresolved`."""
    found = find(text, disks)
    if len(found) == 1:
        return found[0]
    if found:
        raise Unresolved(
            f"{text!r} is the name of several disks: {', '.join(disk['name'] for disk in found)}; use a name that "
            "only one of them has"
        )
    if is_kernel_name(text):
        raise Unresolved(
            f"{text!r} is the kernel's name, which may mean another disk after the next boot; use a WWN, a serial "
            "number or "
            f"a name below {_BY_ID}"
        )
    raise Unresolved(f"no disk has the WWN, serial number or by-id name {text!r}; there are: {known(disks)}")


def resolve(wanted: Iterable[str], disks: Sequence[AnyDisk]) -> list[AnyDisk]:
    """The disks of these names, in their order; raises :class:`Unresolved`, also when two names mean one disk."""
    found = []
    for text in wanted:
        disk = one(text, disks)
        if disk in found:
            raise Unresolved(f"{text!r} and another name mean the same disk, {disk['name']}; name each disk once")
        found.append(disk)
    return found


def known(disks: Sequence[Identity]) -> str:
    """The disks by their stable names, in a line for people."""
    return "; ".join(f"{disk['name']} ({identity(disk)})" for disk in disks) or "no disks"


def identity(disk: Identity) -> str:
    """What a person recognises a disk by."""
    words = [disk["model"], disk_tools.size_words(disk["size"])]
    words += ["serial " + disk["serial"]] if disk["serial"] else []
    words += ["wwn " + disk["wwn"]] if disk["wwn"] else []
    return ", ".join(word for word in words if word)


def stable(disk: Identity, disks: Sequence[Identity]) -> str:
    """A name of the disk that means the same one after the next boot: WWN, by-id name or serial; empty when none."""
    for text in [disk["wwn"]] + list(disk["by_id"]) + [disk["serial"]]:
        if text and find(text, disks) == [disk]:
            return text
    return ""


def strings(chosen: Iterable[Identity], disks: Sequence[Identity], form: str) -> list[str]:
    """The disks as an image command takes them; ``form``: ``short``, ``wwn`` or ``by-id``. Raises Unresolved."""
    found = []
    for disk in chosen:
        if form == "short":
            found.append(disk["name"])
            continue
        options = [disk["wwn"]] if form == "wwn" else disk["by_id"]
        usable = [text for text in options if text and find(text, disks) == [disk]]
        if not usable:
            raise Unresolved(
                "disk %s has no %s of its own; choose another value of device_strings"
                % (disk["name"], "WWN" if form == "wwn" else "name below " + _BY_ID)
            )
        found.append(usable[0])
    return found
