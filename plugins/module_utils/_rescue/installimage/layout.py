# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The layout rules of installimage, checked before it is called (pure).

installimage writes its refusals of an unattended run to a log in the rescue only; here every one of them is a finding
that names field, value and fix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from .config_words import ALL, RHEL_FAMILY, ImageName, check_size, check_word, mebibytes, release, shown

FILESYSTEMS = ("ext2", "ext3", "ext4", "btrfs", "xfs", "reiserfs", "swap", "esp", "bios_grub", "none")
LEAST_DISKS = {0: 2, 1: 2, 5: 3, 6: 4, 10: 2}
LEAST_BOOT, LEAST_ROOT, LEAST_ESP, LEAST_ALL = 200, 1500, 256, 1024
#: Room for partition tables and alignment, in MiB: installimage looks for none, and partitions that need it fail later.
RESERVE = 8
#: An image of which nothing is known.
ANY = ImageName("debian", None, "", "")
#: Versions of CentOS and RHEL with btrfs in their kernels.
_WITH_BTRFS = ((62, 80), (610, 611))

_MOUNT = re.compile(r"(?:/|(?:/[A-Za-z0-9_][A-Za-z0-9._+@-]*)+)\Z")
_VOLUME = re.compile(r"btrfs\.[1-9][0-9]{0,2}\Z")
_LVM_NAME = re.compile(r"[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,60}\Z")
_SUBVOLUME = re.compile(r"[A-Za-z0-9@_][A-Za-z0-9@._+-]*(/[A-Za-z0-9@_][A-Za-z0-9@._+-]*)*\Z")
_PLAIN = ("swap", "lvm", "none")


class Part(TypedDict):
    """One entry of ``partitions``, in installimage's words; ``size``: such as 512M, or all."""

    mount: str
    filesystem: str
    size: str
    crypt: bool


class LogicalVolume(TypedDict):
    """One entry of ``logical_volumes``."""

    vg: str
    name: str
    mount: str
    filesystem: str
    size: str


class Subvolume(TypedDict):
    """One entry of ``subvolumes``; ``volume``: the mount of its partition, such as btrfs.1."""

    volume: str
    subvolume: str
    mount: str


@dataclass
class Layout:
    """Partitions, volumes and subvolumes as the user wrote them, and the RAID below."""

    partitions: Sequence[Part]
    logical_volumes: Sequence[LogicalVolume] = ()
    subvolumes: Sequence[Subvolume] = ()
    swraid: int = 0
    level: int = 1

    @property
    def raid(self) -> int | None:
        """The RAID level, or None."""
        return self.level if self.swraid else None

    @property
    def encrypted(self) -> bool:
        return any(part.get("crypt") for part in self.partitions)

    def groups(self) -> list[str]:
        return list(dict.fromkeys(part["filesystem"] for part in self.partitions if part["mount"] == "lvm"))

    def mounts(self) -> Iterator[tuple[str, str, str]]:
        """Every mount point with the field that sets it, and its size."""
        for place, part in enumerate(self.partitions):
            if part["mount"].startswith("/"):
                yield part["mount"], f"partitions[{place}]", part["size"]
        for place, volume in enumerate(self.logical_volumes):
            if volume["mount"].startswith("/"):
                yield volume["mount"], f"logical_volumes[{place}]", volume["size"]
        for place, subvolume in enumerate(self.subvolumes):
            yield subvolume["mount"], f"subvolumes[{place}]", ALL


def default_partitions(uefi: bool) -> list[Part]:
    """What is made when nothing is said: [ESP,] /boot, and / on the rest; no swap, as Kubernetes wants none."""
    esp: list[Part] = [{"mount": "/boot/efi", "filesystem": "esp", "size": "256M", "crypt": False}] if uefi else []
    return esp + [
        {"mount": "/boot", "filesystem": "ext4", "size": "1G", "crypt": False},
        {"mount": "/", "filesystem": "ext4", "size": ALL, "crypt": False},
    ]


def check_disks(count: int, layout: Layout) -> list[str]:
    """Findings about the number of disks, and what is left of a partition that is spread over them."""
    if layout.swraid and layout.level not in LEAST_DISKS:
        return [f"swraid_level {layout.level}: use one of {', '.join(str(one) for one in LEAST_DISKS)}"]
    if not layout.swraid:
        if count > 1:
            return [
                f"root_devices: {count} disks are named, but one is used without software RAID; set swraid: 1, or name "
                "one disk"
            ]
        return []
    least = LEAST_DISKS[layout.level]
    if count < least:
        return [
            f"root_devices: RAID level {layout.level} needs at least {least} disks, and {count} is named; name "
            "more disks, choose another swraid_level, or set swraid: 0"
        ]
    findings = []
    for place, part in enumerate(layout.partitions):
        size, times = mebibytes(part["size"]), 1 if _is_mirrored(layout, part) else _spread(layout, count)
        wanted = LEAST_ROOT if part["mount"] == "/" else 1
        # Smaller ones are refused by themselves.
        if size is not None and size >= wanted > size // times:
            findings.append(
                f"partitions[{place}].size {shown(part['size'])}: RAID level {layout.level} of {count} disks leaves "
                f"{size // times} MiB on each for {part['mount']}, which needs at least {wanted}M there; "
                f"give it {wanted * times}M or more"
            )
    return findings


def check_layout(layout: Layout, image: ImageName = ANY) -> list[str]:
    """Findings that need neither the machine nor its firmware."""
    findings = _check_partitions(layout) + _check_lvm(layout) + _check_subvolumes(layout)
    if not findings:
        # What follows reads sizes and names, so they must be well formed.
        findings = _check_all(layout) + _check_mounts(layout) + _check_boot(layout) + _check_crypt(layout)
    return findings + _check_system(layout, image)


def _check_system(layout: Layout, image: ImageName) -> list[str]:
    """What the system of the image does not know."""
    findings = []
    family = image.distro in RHEL_FAMILY
    fields: list[tuple[str, Part | LogicalVolume]] = [
        (f"partitions[{place}]", part) for place, part in enumerate(layout.partitions)
    ]
    fields += [(f"logical_volumes[{place}]", volume) for place, volume in enumerate(layout.logical_volumes)]
    for field, one in fields:
        what, filesystem = f"{field}.filesystem {shown(one['filesystem'])}", one["filesystem"]
        if one["mount"] == "lvm":
            continue
        if (
            filesystem == "btrfs"
            and family
            and not (image.distro in ("centos", "rhel") and release(image, *_WITH_BTRFS))
        ):
            findings.append(f"{what}: {image.distro} has no btrfs; use ext4 or xfs")
        if filesystem == "reiserfs" and family:
            findings.append(f"{what}: {image.distro} has no reiserfs; use ext4 or xfs")
        old = (image.distro == "ubuntu" and release(image, (0, 2005))) or (
            image.distro == "debian" and release(image, (0, 1100))
        )
        if filesystem == "xfs" and old:
            findings.append(
                f"{what}: the rescue's xfs is too new for {image.distro} before "
                f"{'20.10' if image.distro == 'ubuntu' else '11'}, which the name of the image says (field "
                f"{image.version}); use ext4, or an image whose name says its version"
            )
    if layout.encrypted and image.distro == "centos" and release(image, (0, 70), (610, 611)):
        findings.append("partitions: installimage encrypts CentOS from version 7 on; leave crypt out")
    return findings


def firmware_warnings(layout: Layout, uefi: bool) -> list[str]:
    """What is taken, and may not be what is meant."""
    if uefi or not any(part["filesystem"] == "esp" for part in layout.partitions):
        return []
    return [
        "the rescue was booted in legacy mode: the ESP stays empty, and the boot loader is made for legacy mode; to "
        "start the system by UEFI, switch the firmware (and its network boot) over and install again"
    ]


def check_firmware(layout: Layout, uefi: bool, image: ImageName = ANY) -> list[str]:
    """Findings about ESP and firmware."""
    found = [place for place, part in enumerate(layout.partitions) if part["filesystem"] == "esp"]
    if not uefi:
        return []
    if image.distro in RHEL_FAMILY and release(image, (80, 90), (810, 900)):
        return [f"image: installimage does not install version 8 of {image.distro} under UEFI; use version 9"]
    if len(found) == 1:
        return []
    what = "there is no ESP" if not found else f"there are {len(found)} ESPs"
    return [
        f"partitions: {what}, but the rescue was booted by UEFI; have exactly one entry {{mount: /boot/efi, "
        "filesystem: esp, size: 256M}"
    ]


def check_capacity(layout: Layout, disk_bytes: Sequence[int]) -> list[str]:
    """Findings about sizes, when those of the disks are known (in bytes)."""
    whole = min(disk_bytes) // (1024 * 1024)
    least = whole - RESERVE
    fixed = [_on_each_disk(layout, part, len(disk_bytes)) for part in layout.partitions]
    findings = []
    if sum(fixed) > least:
        findings.append(
            f"partitions: they take {sum(fixed)} MiB of each disk, but the smallest one holds {least} MiB; make "
            "them smaller"
        )
        return findings
    rest = whole - sum(fixed)
    for place, part in enumerate(layout.partitions):
        wanted = LEAST_ROOT if part["mount"] == "/" else LEAST_ALL
        if part["size"] == ALL and rest < wanted:
            findings.append(
                f'partitions[{place}].size "all": {rest} MiB are left for {part["mount"]}, it needs at least '
                f"{wanted}M; make the others smaller"
            )
    return findings or _check_groups(layout, rest * _spread(layout, len(disk_bytes)))


def _spread(layout: Layout, count: int) -> int:
    """How many disks' worth of data the array holds."""
    disks = {0: count, 5: count - 1, 6: count - 2, 10: count // 2}
    return max(1, 1 if layout.raid is None else disks.get(layout.raid, 1))


def _on_each_disk(layout: Layout, part: Part, count: int) -> int:
    """MiB that a partition takes of each disk: an array is spread over all of them, but /boot and ESP are mirrored.

    So is swap, unless the array is a striped one.
    """
    size = mebibytes(part["size"]) or 0
    return size if _is_mirrored(layout, part) else -(-size // _spread(layout, count))


def _is_mirrored(layout: Layout, part: Part) -> bool:
    return part["mount"] in ("/boot", "/boot/efi") or (part["mount"] == "swap" and layout.raid != 0)


def _check_groups(layout: Layout, rest: int) -> list[str]:
    findings = []
    for group in layout.groups():
        parts = [one for one in layout.partitions if one["mount"] == "lvm" and one["filesystem"] == group]
        # installimage wants to keep a gigabyte of what it calls the rest.
        room = sum(mebibytes(part["size"]) or rest - LEAST_ALL for part in parts)
        wanted = sum(mebibytes(one["size"]) or 0 for one in layout.logical_volumes if one["vg"] == group)
        if wanted > room:
            findings.append(
                f"logical_volumes: those of volume group {group} add up to {wanted} MiB, but only {room} MiB may be "
                "given away; make them smaller, and give one of them all of the rest"
            )
    return findings


def _check_partitions(layout: Layout) -> list[str]:
    findings = []
    for place, part in enumerate(layout.partitions):
        field = f"partitions[{place}]"
        mount, filesystem, size = part["mount"], part["filesystem"], part["size"]
        findings += check_size(field + ".size", size)
        if mount == "lvm":
            findings += _check_lvm_name(field + ".filesystem", filesystem, "the name of the volume group")
            # Named again, it grows.
            continue
        if filesystem not in FILESYSTEMS:
            findings.append(
                f"{field}.filesystem {shown(filesystem)}: use one of {', '.join(FILESYSTEMS)}"
            )  # fmt: skip
            continue
        if not (mount in _PLAIN or _MOUNT.match(mount) or _VOLUME.match(mount)):
            findings.append(
                f"{field}.mount {shown(mount)}: use a path such as /var (letters, digits, '.', '_', '+', '@' and '-'), "
                "swap, lvm, btrfs.1 or none"
            )
            continue
        findings += _check_pair(field, mount, filesystem, size)
    return findings


def _check_pair(field: str, mount: str, filesystem: str, size: str) -> list[str]:
    findings = []
    if (mount == "swap") != (filesystem == "swap"):
        findings.append(f"{field}: swap needs both mount: swap and filesystem: swap")
    if _VOLUME.match(mount) and filesystem != "btrfs":
        findings.append(f"{field}.filesystem {shown(filesystem)}: {mount} holds btrfs subvolumes; use btrfs")
    if (mount == "none") != (filesystem in ("bios_grub", "none")):
        findings.append(f"{field}: mount: none goes with filesystem bios_grub or none, and only with them")
    if (mount == "/boot/efi") != (filesystem == "esp"):
        findings.append(f"{field}: an ESP needs both mount: /boot/efi and filesystem: esp")
    elif filesystem == "esp" and (size == ALL or (mebibytes(size) or LEAST_ESP) < LEAST_ESP):
        findings.append(f"{field}.size {shown(size)}: an ESP needs a size of its own, at least {LEAST_ESP}M")
    return findings


def _check_lvm_name(field: str, name: str, what: str) -> list[str]:
    if not _LVM_NAME.match(name) or name in (".", "..", ALL):
        return [f"{field} {shown(name)}: give {what}, letters, digits and '+_.-' only, such as vg0"]
    return check_word(field, name)


def _check_lvm(layout: Layout) -> list[str]:
    findings = []
    groups = [part["filesystem"] for part in layout.partitions if part["mount"] == "lvm"]
    seen = set()
    full: dict[str, int] = {}
    for place, volume in enumerate(layout.logical_volumes):
        field = f"logical_volumes[{place}]"
        findings += _check_lvm_name(field + ".name", volume["name"], "the name of the logical volume")
        findings += check_size(field + ".size", volume["size"])
        if volume["vg"] not in groups:
            group = volume["vg"] if _LVM_NAME.match(volume["vg"]) else "vg0"
            findings.append(
                f"{field}.vg {shown(volume['vg'])}: no partition makes this volume group; add "
                f"{{mount: lvm, filesystem: {group}, size: all}}"
            )
        if volume["filesystem"] not in FILESYSTEMS or volume["filesystem"] in ("esp", "bios_grub", "none"):
            findings.append(
                f"{field}.filesystem {shown(volume['filesystem'])}: use ext2, ext3, ext4, btrfs, xfs, reiserfs or swap"
            )
        elif volume["mount"] != "swap" and not _MOUNT.match(volume["mount"]):
            findings.append(f"{field}.mount {shown(volume['mount'])}: use a path such as /var, or swap")
        elif (volume["mount"] == "swap") != (volume["filesystem"] == "swap"):
            findings.append(f"{field}: swap needs both mount: swap and filesystem: swap")
        key = (volume["vg"], volume["name"])
        if key in seen:
            findings.append(f"{field}.name {shown(volume['name'])}: the logical volume is named twice")
        seen.add(key)
        if volume["vg"] in full:
            findings.append(
                f"{field}: it comes after logical_volumes[{full[volume['vg']]}], which takes all of volume group "
                f"{shown(volume['vg'])}; put that one last"
            )
        elif volume["size"] == ALL:
            full[volume["vg"]] = place
    for group in dict.fromkeys(groups):
        if not any(volume["vg"] == group for volume in layout.logical_volumes):
            findings.append(
                f"partitions: nothing is in the volume group {shown(group)}; add entries to logical_volumes"
            )
    return findings


def _check_subvolumes(layout: Layout) -> list[str]:
    findings = []
    volumes = {part["mount"] for part in layout.partitions if _VOLUME.match(part["mount"])}
    used, seen = set(), set()
    for place, one in enumerate(layout.subvolumes):
        field = f"subvolumes[{place}]"
        used.add(one["volume"])
        if one["volume"] not in volumes:
            findings.append(
                f"{field}.volume {shown(one['volume'])}: no partition makes this btrfs volume; add "
                "{mount: btrfs.1, filesystem: btrfs, size: all}"
            )
        if not _SUBVOLUME.match(one["subvolume"]):
            findings.append(f"{field}.subvolume {shown(one['subvolume'])}: use a name such as @home")
        elif (one["volume"], one["subvolume"]) in seen:
            findings.append(f"{field}.subvolume {shown(one['subvolume'])}: it is named twice")
        seen.add((one["volume"], one["subvolume"]))
        if not _MOUNT.match(one["mount"]):
            findings.append(f"{field}.mount {shown(one['mount'])}: use a path such as /home")
    for volume in sorted(volumes - used):
        findings.append(f"partitions: nothing is in the btrfs volume {volume}; add entries to subvolumes")
    return findings


def _check_all(layout: Layout) -> list[str]:
    places = [place for place, part in enumerate(layout.partitions) if part["size"] == ALL]
    if len(places) > 1:
        return [
            (
                f'partitions[{places[1]}].size "all": partitions[{places[0]}] takes all of the disk already; give all '
                "to the last one only"
            )
        ]
    if places and places[0] != len(layout.partitions) - 1:
        return [f'partitions[{places[0]}].size "all": nothing is left for those after it; put this one last']
    return []


def _check_mounts(layout: Layout) -> list[str]:
    findings = []
    seen: dict[str, str] = {}
    for mount, field, size in layout.mounts():
        if mount in seen:
            findings.append(f"{field}.mount {shown(mount)}: {seen[mount]} mounts it already; mount it once")
        seen.setdefault(mount, field)
        least = {"/": LEAST_ROOT, "/boot": LEAST_BOOT}.get(mount)
        if least and (mebibytes(size) or least) < least:
            findings.append(f"{field}.size {shown(size)}: {mount} needs at least {least}M")
    swaps = [place for place, volume in enumerate(layout.logical_volumes) if volume["mount"] == "swap"]
    if len(swaps) > 1:
        findings.append(
            f'logical_volumes[{swaps[1]}].mount "swap": installimage takes one logical volume of swap, and '
            f"logical_volumes[{swaps[0]}] "
            "is it; leave this one out, or make it a partition"
        )
    if "/" not in seen:
        findings.append("partitions: nothing is mounted on /; add {mount: /, filesystem: ext4, size: all}")
    return findings


def _check_boot(layout: Layout) -> list[str]:
    findings = []
    mounts = [part["mount"] for part in layout.partitions]
    if layout.logical_volumes and "/boot" not in mounts and "/" not in mounts:
        findings.append(
            "partitions: / or /boot must be a partition, not in LVM, for the boot loader; add "
            "{mount: /boot, filesystem: ext4, size: 1G} at the top"
        )
    first = "/boot" if "/boot" in mounts else "/"
    if first in mounts[3:]:
        instead = "" if first == "/boot" else ", or add {mount: /boot, filesystem: ext4, size: 1G} there"
        findings.append(
            f'partitions[{mounts.index(first)}].mount "{first}": {first} must be one of the first three partitions, '
            f"for the boot loader; put it at the top{instead}"
        )
    if layout.raid not in (None, 1) and "/boot" not in mounts:
        findings.append(
            f"partitions: RAID level {layout.raid} needs a /boot of its own, which installimage mirrors; add "
            "{mount: /boot, filesystem: ext4, size: 1G} at the top"
        )
    return findings


def _check_crypt(layout: Layout) -> list[str]:
    findings = []
    own = any(part["mount"] == "/boot" for part in layout.partitions)
    for place, part in enumerate(layout.partitions):
        if part.get("crypt") and (
            part["mount"] in ("/boot", "/boot/efi", "none") or (part["mount"] == "/" and not own)
        ):
            findings.append(
                f"partitions[{place}].crypt: the boot loader could not read {part['mount']}; leave it unencrypted, and "
                "give an encrypted / a /boot of its own"
            )
    return findings
