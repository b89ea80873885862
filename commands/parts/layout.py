# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout of a disk, as the image URL says it, and the partitions it becomes."""

from __future__ import annotations

import platform
import re
from typing import NamedTuple

from commands.parts.errors import Refused
from commands.parts.sizes import MIB

FILE_SYSTEMS = ("ext4", "xfs", "btrfs")
DEFAULT_LAYOUT = "/:ext4"
ESP_MIB = 512
BIOS_TYPE = "21686148-6449-6E6F-744E-656564454649"
ESP_TYPE = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
SWAP_TYPE = "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"
PLAIN_TYPE = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
#: What root partitions are marked with, for systemd and for people.
ROOT_TYPES = {
    "x86_64": "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709",
    "aarch64": "B921B045-1DF0-41C3-AF44-4C6F280D3FAE",
}
#: Folders that must be on the root file system, or that something else is mounted on.
NOT_MOUNTED = ("/bin", "/boot/efi", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
UNITS = {"M": 1, "G": 1024, "T": 1024 * 1024}
LEAST_MIB = {"swap": 1, "esp": 34, "ext4": 16, "xfs": 320, "btrfs": 128}


class Volume(NamedTuple):
    """One partition: its purpose (mount point, esp, swap or bios), file system, and size in MiB (0: the rest)."""

    purpose: str
    fs: str
    mib: int

    @property
    def mounted(self) -> bool:
        """Whether it is a file system of the new system, the ESP aside."""
        return self.purpose.startswith("/")


class Layout:
    """The partitions in their order: BIOS boot (where there are BIOSes), ESP, then what the user named."""

    def __init__(self, text: str = ""):
        self.volumes = [one_volume(part) for part in (text or DEFAULT_LAYOUT).split(",")]
        purposes = [volume.purpose for volume in self.volumes]
        for purpose in purposes:
            if purposes.count(purpose) > 1:
                raise Refused("image URL: layout=: %s is there twice" % purpose)
        if "/" not in purposes:
            raise Refused("image URL: layout=: the root / is missing; add /:ext4")
        if any(not volume.mib for volume in self.volumes[:-1]):
            raise Refused("image URL: layout=: only the last partition can take the rest; give the others a size")
        if len(self.volumes) > 12:
            raise Refused("image URL: layout=: %d partitions; 12 are the most" % len(self.volumes))
        esp = next((one for one in self.volumes if one.purpose == "esp"), Volume("esp", "vfat", ESP_MIB))
        own = [one for one in self.volumes if one.purpose != "esp"]
        self.bios = platform.machine() == "x86_64"
        self.volumes = ([Volume("bios", "", 1)] if self.bios else []) + [esp, *own]

    def sizes(self, disk_size: int) -> list:
        """Return the size of each partition in bytes; refuse a disk that is too small."""
        free = disk_size // MIB - 2  # a MiB before the first and behind the last one
        fixed = sum(one.mib for one in self.volumes)
        rest = self.volumes[-1]
        least = fixed + (LEAST_MIB[rest.fs] if not rest.mib else 0)
        if least > free:
            raise Refused("image URL: layout=: it needs %d MiB, the disk has %d MiB" % (least + 2, disk_size // MIB))
        return [(one.mib or free - fixed) * MIB for one in self.volumes]

    def mounts(self) -> list:
        """Return the mount points, outer ones first."""
        return sorted((one.purpose for one in self.volumes if one.mounted), key=lambda one: one.rstrip("/").count("/"))

    def script(self, disk_size: int) -> str:
        """Return what sfdisk makes the table of."""
        lines = ["label: gpt"]
        for volume, size in zip(self.volumes, self.sizes(disk_size)):
            kind = {"bios": BIOS_TYPE, "esp": ESP_TYPE, "swap": SWAP_TYPE}.get(volume.purpose, PLAIN_TYPE)
            if volume.purpose == "/":
                kind = ROOT_TYPES.get(platform.machine(), PLAIN_TYPE)
            name = {"/": "root"}.get(volume.purpose, volume.purpose.strip("/").replace("/", "-"))
            lines.append('size=%dMiB, type=%s, name="%s"' % (size // MIB, kind, name))
        return "\n".join(lines) + "\n"

    def number(self, volume: Volume) -> int:
        """Return the number of a volume's partition."""
        return self.volumes.index(volume) + 1


def one_volume(text: str) -> Volume:
    """Read `swap:SIZE`, `esp:SIZE` or `MOUNT:FILE SYSTEM[:SIZE]`."""
    fields = text.split(":")
    if fields[0] in ("swap", "esp") and len(fields) == 2:
        purpose, fs, size = fields[0], {"swap": "swap", "esp": "esp"}[fields[0]], fields[1]
    elif fields[0].startswith("/") and len(fields) in (2, 3):
        purpose, fs, size = fields[0], fields[1], fields[2] if len(fields) == 3 else "rest"
    else:
        raise Refused("image URL: layout=: %r is none of MOUNT:FILESYSTEM[:SIZE], swap:SIZE and esp:SIZE" % text)
    if purpose.startswith("/"):
        if not re.fullmatch(r"/|(/[a-z0-9][a-z0-9._-]{0,30})+", purpose):
            raise Refused("image URL: layout=: %r is no mount point such as / or /var" % purpose)
        if purpose in NOT_MOUNTED or purpose.startswith(("/dev/", "/proc/", "/sys/", "/run/", "/etc/")):
            raise Refused("image URL: layout=: %s cannot be a partition of its own" % purpose)
        if fs not in FILE_SYSTEMS:
            raise Refused("image URL: layout=: %s: %r is none of %s" % (purpose, fs, ", ".join(FILE_SYSTEMS)))
    found = re.fullmatch("([1-9][0-9]{0,6})([MGT])", size)
    if not found and (size != "rest" or not purpose.startswith("/")):
        raise Refused("image URL: layout=: %s: %r is no size such as 512M or 20G" % (purpose, size))
    mib = int(found.group(1)) * UNITS[found.group(2)] if found else 0
    if found and mib < LEAST_MIB[fs]:
        raise Refused("image URL: layout=: %s: %s needs at least %dM" % (purpose, fs, LEAST_MIB[fs]))
    return Volume(purpose, "vfat" if fs == "esp" else fs, mib)
