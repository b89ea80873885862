# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autosetup file: its keys and values as they are written. `validation` checks them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ALL = "all"
_UNITS = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_SIZE = re.compile(r"([0-9]{1,15})(?:([MGT])(?:iB)?)?")


@dataclass(frozen=True)
class Part:
    """A PART line; the size is MiB, "all", or the text itself when it is neither."""

    mount: str
    filesystem: str
    size: int | str
    crypt: bool = False

    @property
    def is_btrfs_volume(self) -> bool:
        """Whether this partition holds subvolumes."""
        return re.match(r"btrfs\.\w+", self.mount) is not None


@dataclass(frozen=True)
class LogicalVolume:
    """An LV line."""

    group: str
    name: str
    mount: str
    filesystem: str
    size: int | str


@dataclass(frozen=True)
class Subvolume:
    """A SUBVOL line."""

    volume: str
    name: str
    mount: str


@dataclass
class Config:
    """All keys of an autosetup file."""

    drives: list[str] = field(default_factory=list)
    format_drives: dict[int, str] = field(default_factory=dict)  # number of the drive → what was written
    swraid: str = "0"
    level: str = "1"
    bootloader: str = "grub"
    hostname: str = ""
    governor: str = "ondemand"
    parts: list[Part] = field(default_factory=list)
    logical_volumes: list[LogicalVolume] = field(default_factory=list)
    subvolumes: list[Subvolume] = field(default_factory=list)
    image: str = ""
    crypt_password: str = ""
    sshkeys_url: str = ""
    take_over_keys: bool = True
    ipv4_only: bool = False
    force_gpt: bool = False
    force_sign: bool = False
    force_password: bool = False
    assume_clean: bool = False
    raid_layout: str = ""
    preserve_groups: str = ""

    @property
    def raid(self) -> bool:
        """Whether the drives become arrays."""
        return self.swraid == "1"

    @property
    def crypt(self) -> bool:
        """Whether any partition is encrypted."""
        return any(part.crypt for part in self.parts)

    @property
    def lvm(self) -> bool:
        """Whether there are volume groups with volumes in them."""
        return bool(self.logical_volumes) and any(part.mount == "lvm" for part in self.parts)

    @property
    def used_drives(self) -> list[str]:
        return self.drives if self.raid else self.drives[:1]

    @property
    def erased_drives(self) -> list[str]:
        """The drives whose partition table goes."""
        extra = [drive for number, drive in enumerate(self.drives, 1) if self.format_drives.get(number) == "1"]
        return list(dict.fromkeys(self.used_drives + extra))


def size(text: str) -> int | str:
    """MiB of "512M", "512MiB", "4G", "1T" or "300"; "all" and what is no size stay text."""
    match = _SIZE.fullmatch(text)
    if match:
        return int(match[1]) * _UNITS[match[2] or ""]
    return text


def parse(text: str) -> Config:
    """Read an autosetup file: the first line of a key counts, unknown keys are passed over."""
    lines = [line.rstrip("\r") for line in text.splitlines()]
    words = [line.split() for line in lines if re.match(r"[A-Z]", line)]
    config = Config()
    values: dict[str, str] = {}
    for key, *rest in words:
        row = [*rest, "", "", "", "", ""]
        if key == "PART":
            config.parts.append(Part(row[0], row[1], size(row[2]), crypt=row[3] == "crypt"))
        elif key == "LV":
            config.logical_volumes.append(LogicalVolume(row[0], row[1], row[2], row[3], size(row[4])))
        elif key == "SUBVOL":
            config.subvolumes.append(Subvolume(row[0], row[1], row[2]))
        elif key in ("IPV4_ONLY",):
            values[key] = row[0]  # of these the last line counts
        else:
            values.setdefault(key, row[0])
    for number in sorted(int(key[5:]) for key in values if re.fullmatch(r"DRIVE[1-9][0-9]{0,2}", key)):
        config.drives.append(values[f"DRIVE{number}"])
    config.format_drives = {
        int(key[11:]): value for key, value in values.items() if re.fullmatch(r"FORMATDRIVE[1-9][0-9]{0,2}", key)
    }
    config.swraid = values.get("SWRAID") or "0"
    config.level = values.get("SWRAIDLEVEL") or "1"
    config.bootloader = (values.get("BOOTLOADER") or "grub").lower()
    config.hostname = values.get("HOSTNAME", "")
    config.governor = values.get("GOVERNOR") or config.governor
    config.image = values.get("IMAGE", "")
    secret = next((line for line in lines if line.startswith("CRYPTPASSWORD ")), "")
    config.crypt_password = secret.partition(" ")[2]
    config.sshkeys_url = values.get("SSHKEYS_URL", "")
    config.take_over_keys = values.get("TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS", "").lower() != "no"
    config.ipv4_only = values.get("IPV4_ONLY", "").startswith("y")
    config.force_gpt = values.get("FORCE_GPT") in ("1", "2")
    config.force_sign = bool(values.get("FORCE_SIGN"))
    config.force_password = values.get("FORCE_PASSWORD") == "1"
    config.assume_clean = values.get("RAID_ASSUME_CLEAN") == "1"
    config.raid_layout = values.get("RAID_LAYOUT", "")
    config.preserve_groups = values.get("PRESERVE_VG", "")
    return config
