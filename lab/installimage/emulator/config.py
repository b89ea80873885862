# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autosetup file: its keys and values as they are written, and what installimage refuses before it begins (pure).

Refusals are in its own words and its own order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .image import ImageName, parse_image_name

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


_FILESYSTEMS = ("btrfs", "ext2", "ext3", "ext4", "reiserfs", "xfs", "swap", "none")
_MOUNT = re.compile(r"/\w*|none\Z|swap\Z|lvm\Z|btrfs\.\w+")
_LEAST_DRIVES = {"5": 3, "6": 4, "10": 2}
_NO_BTRFS = {"rockylinux": "Rocky Linux", "almalinux": "AlmaLinux"}
_NO_REISERFS = ("almalinux", "centos", "rockylinux")
_RHEL_FAMILY = ("centos", "rockylinux", "almalinux", "rhel")


@dataclass(frozen=True)
class Drive:
    """A block device that may be named by DRIVEn."""

    size_bytes: int
    busy: bool = False


@dataclass(frozen=True)
class Machine:
    """What the validation depends on beside the config."""

    architecture: str  # uname -m
    uefi: bool
    drives: dict[str, Drive]  # those of the config that are whole block devices
    stackable: bool = True  # whether the kernel is the machine's own, so that md and device mapper may be used


def first_error(config: Config, machine: Machine) -> str | None:
    """The first reason why this config is not installed on this machine."""
    return next(_errors(config, machine), None)


def _errors(config: Config, machine: Machine) -> Iterator[str]:
    yield from _image(config, machine)
    yield from _drives(config, machine)
    yield from _places(config)
    if not config.parts:
        yield "ERROR: The config has no partitions"
    for number, part in enumerate(config.parts, 1):
        yield from _part(number, part, config, machine)
    if machine.uefi and sum(part.filesystem == "esp" for part in config.parts) != 1:
        yield "ERROR: ESP missing or multiple ESP found"
    if config.bootloader != "grub":
        yield "ERROR: No valid BOOTLOADER"
    if config.governor.lower() not in ("powersave", "performance", "ondemand"):
        yield "ERROR: No valid GOVERNOR"
    yield from _logical_volumes(config)
    yield from _subvolumes(config)
    yield from _mounts(config)
    yield from _space(config, machine)
    if not config.hostname:
        yield "ERROR: HOSTNAME may not be empty"
    if config.crypt and not config.crypt_password:
        yield "ERROR: Value for CRYPTPASSWORD is not defined"
    image = parse_image_name(config.image)
    if config.crypt and image.distribution == "centos" and image.among((0, 70), (610, 611)):
        yield "ERROR: CentOS 7 or higher is needed for encryption!"
    yield from _beyond_the_lab(config, machine)


def _beyond_the_lab(config: Config, machine: Machine) -> Iterator[str]:
    """Errors for what only the real installimage can do."""
    if not machine.stackable and (config.raid or config.lvm or config.crypt):
        what = "software RAID" if config.raid else "LVM" if config.lvm else "encryption"
        yield f"ERROR: no {what} in a container of the lab (its kernel is the host's); use a machine of kind qemu"


def _image(config: Config, machine: Machine) -> Iterator[str]:
    if not config.image:
        yield "ERROR: No valid IMAGEPATH"
    image = parse_image_name(config.image)
    if not image.file:
        yield "ERROR: No valid IMAGEFILE"
    if not image.packing:
        yield f"ERROR: {image.packing} is no valid FILETYPE for images"
    if machine.uefi and image.distribution in _RHEL_FAMILY and image.among((80, 90), (810, 900)):
        yield f"ERROR: we do not yet support {image.distribution} {image.version} on EFI systems"
    if not image.architecture:
        yield "ERROR: can not determine image arch from filename"
    if not image.fits(machine.architecture):
        yield f"ERROR: can not install an {image.architecture} image on a {machine.architecture} system"


def _drives(config: Config, machine: Machine) -> Iterator[str]:
    drives = config.drives
    if not drives or drives[0] not in machine.drives:
        yield f"ERROR: Value for DRIVE1 is not correct: {drives[0] if drives else ''} "
    if config.swraid not in ("0", "1"):
        yield "ERROR: Value for SWRAID is not correct"
    if config.raid and config.level not in ("0", "1", "5", "6", "10"):
        yield "ERROR: Value for SWRAIDLEVEL is not correct"
    for number, drive in enumerate(drives, 1):
        if drive in drives[: number - 1]:
            first = drives.index(drive) + 1
            yield f"Duplicate DRIVE definition. {drive} used for DRIVE{first} and DRIVE{number}"
        formatted = config.format_drives.get(number, "0")
        if number > 1 and formatted not in ("0", "1"):
            yield f"ERROR: Value for FORMATDRIVE{number} is not correct"
        if number > 1 and formatted == "1" and config.raid:
            yield (
                f"ERROR: FORMATDRIVE{number} _AND_ SWRAID are active - use one or none of these options, not both"
            )  # fmt: skip
        if config.raid or formatted == "1" or number == 1:
            if drive not in machine.drives:
                yield f"ERROR: Value for DRIVE{number} is not correct: {drive}"
            if machine.drives[drive].busy:
                yield f"ERROR: DRIVE{number} is busy - cannot access device {drive}"
    if config.raid and len(drives) <= 1:
        yield "ERROR: You need to select at least 2 disks for creating software raid!"
    if config.raid and len(drives) < _LEAST_DRIVES.get(config.level, 0):
        yield f"ERROR: Not enough disks for RAID level {config.level}"
    if config.raid and config.level != "1" and not any(part.mount == "/boot" for part in config.parts):
        yield "ERROR: You need a /boot partition when using software RAID level 0, 5, 6 or 10"


def _places(config: Config) -> Iterator[str]:
    """Where /boot and / may lie."""
    mounts = [part.mount for part in config.parts]
    if config.lvm and "/boot" not in mounts and "/" not in mounts:
        yield "ERROR: /boot or / may not be a Logical Volume"
    if len(mounts) > 3:
        if "/boot" in mounts[3:] and "/boot" not in mounts[:3]:
            yield "ERROR: /boot must be mounted on a primary partition"
        if "/boot" not in mounts and "/" in mounts[3:]:
            yield "ERROR: / must be mounted on a primary partition"


def _part(number: int, part: Part, config: Config, machine: Machine) -> Iterator[str]:
    image = parse_image_name(config.image)
    distribution = image.distribution
    if not _MOUNT.match(part.mount):
        yield f"ERROR: Mountpoint for partition {number} is not correct: '{part.mount}' is not a valid mountpoint"
    known = part.filesystem in (*_FILESYSTEMS, "esp") or part.filesystem.startswith("bios_grub")
    if not known and part.mount != "lvm":
        yield f"ERROR: Filesystem for partition {number} is not correct"
    if part.filesystem == "none" and part.mount != "none":
        yield f"ERROR: No filesystem for partition {number}, but mounted to {part.mount}"
    if part.filesystem == "reiserfs" and distribution in _NO_REISERFS:
        yield f"ERROR: reiserfs is not supported for {distribution}"
    if part.filesystem == "xfs":
        yield from _xfs(image)
    if part.filesystem == "esp":
        if part.crypt:
            yield "Error: ESP partition can't be crypted"
        if part.mount != "/boot/efi":
            yield "ERROR: EFI System Partition (ESP) must be mounted at /boot/efi"
        if part.size == ALL:
            yield "ERROR: EFI System Partition MUST NOT be all remaining disk space"
        if isinstance(part.size, int) and part.size < 256:
            yield f"ERROR: EFI System Partition (ESP) has to be at least 256M (current size: {part.size})"
    if part.filesystem == "btrfs" and distribution == "centos" and image.is_before(62):
        yield "ERROR: CentOS older than 6.2 doesn't support btrfs"
    if part.filesystem == "btrfs" and distribution == "centos" and image.among((80, 610), (611, 10**9)):
        yield "ERROR: CentOS 8 doesn't support btrfs"
    if part.filesystem == "btrfs" and distribution in _NO_BTRFS:
        yield f"ERROR: {_NO_BTRFS[distribution]} doesn't support btrfs"
    if part.size == ALL and number < len(config.parts):
        yield 'ERROR: Partition size "all" has to be on the last partition'
    size = sizes_on_a_drive(config)[number - 1]
    if not (size == ALL or (isinstance(size, int) and size > 0)):
        yield f"ERROR: The size of the partition PART {part.mount} is not a valid number"
    if isinstance(size, int):
        if part.mount == "/boot" and size < 200:
            yield f"ERROR: Your /boot partition has to be at least 200M (current size: {size})"
        if part.mount == "/" and size < 1500:
            yield f"ERROR: Your / partition has to be at least 1500M (current size: {size})"


def _xfs(image: ImageName) -> Iterator[str]:
    """The rescue's mkfs.xfs is of version 6: its file systems are too new for old kernels."""
    old = {"ubuntu": (0, 2005), "debian": (0, 1100)}.get(image.distribution)
    if old and image.among(old):
        yield f"ERROR: xfs for {image.distribution} {image.version} is not supported"


def _logical_volumes(config: Config) -> Iterator[str]:
    image = parse_image_name(config.image)
    groups = [part.filesystem for part in config.parts if part.mount == "lvm"]
    if groups and not config.logical_volumes:
        yield "ERROR: There are volume groups defined, but no logical volumes are defined"
    if config.logical_volumes and not groups:
        yield "ERROR: There are logical volumes defined, but no volume groups are defined"
    for place, volume in enumerate(config.logical_volumes):
        if not re.match(r"/|swap\Z|none\Z", volume.mount):
            yield f"ERROR: Mountpoint for LV '{volume.name}' is not correct"
        if volume.filesystem not in _FILESYSTEMS:
            yield f"ERROR: Filesystem for LV '{volume.name}' is not correct"
        if volume.filesystem == "reiserfs" and image.distribution == "centos":
            yield "ERROR: reiserfs is not supported for CentOS"
        if volume.filesystem == "xfs":
            yield from _xfs(image)
        if not (volume.size == ALL or (isinstance(volume.size, int) and volume.size > 0)):
            yield f"ERROR: size of LV '{volume.name}' is not a valid number"
        if volume.mount == "/" and isinstance(volume.size, int) and volume.size < 1500:
            yield "ERROR: Your / partition has to be at least 1500M"
        later = config.logical_volumes[place + 1 :]
        if volume.size == ALL and any(other.group == volume.group for other in later):
            yield f"ERROR: LV size 'all' has to be on the last LV in VG {volume.group}."
    for volume in config.logical_volumes:
        if volume.group not in groups:
            yield f"ERROR: LVM volume group '{volume.group}' not defined"


def _subvolumes(config: Config) -> Iterator[str]:
    volumes = [part.mount for part in config.parts if part.is_btrfs_volume]
    if volumes and not config.subvolumes:
        yield "ERROR: There are btrfs volumes defined, but no subvolumes defined"
    if config.subvolumes and not volumes:
        yield "ERROR: There are btrfs subvolumes defined, but no volumes defined"
    for subvolume in config.subvolumes:
        if not subvolume.mount.startswith("/"):
            yield f"ERROR: Mountpoint for btrfs subvolume '{subvolume.name}' is not correct"
    for name in volumes:
        if not any(subvolume.volume == name for subvolume in config.subvolumes):
            yield f"ERROR: No subvolumes defined for btrfs volume '{name}'"
    for subvolume in config.subvolumes:
        if subvolume.volume not in volumes:
            yield f"ERROR: BTRFS volume '{subvolume.volume}' not defined"


def _mounts(config: Config) -> Iterator[str]:
    named = [part.mount for part in config.parts if part.mount not in ("lvm", "swap", "none")]
    # The real one leaves out swap of partitions, and counts that of logical volumes.
    named += [volume.mount for volume in config.logical_volumes if volume.mount != "none"]
    named += [subvolume.mount for subvolume in config.subvolumes]
    twice = sorted({mount for mount in named if named.count(mount) > 1})
    if twice and twice[0].startswith("btrfs."):
        listed = ", ".join(twice)
        yield f"ERROR: Duplicate btrfs volumes in config ({listed}). Multi-device volumes are not supported"
    if twice:
        yield f"ERROR: There are identical mountpoints in the config ({', '.join(twice)})"


def _space(config: Config, machine: Machine) -> Iterator[str]:
    sizes = [machine.drives[drive].size_bytes for drive in config.used_drives]
    available = min(sizes) * factor(config) // (1 << 20)
    used = 0
    for part, wanted in zip(config.parts, sizes_on_a_drive(config), strict=True):
        if wanted == ALL:
            available -= 1024  # a partition of all the rest must have a gigabyte left
        elif isinstance(wanted, int):
            used += wanted
        if part.mount == "lvm" and part.size == ALL:
            group = [one.size for one in config.logical_volumes if one.group == part.filesystem]
            used += sum(one for one in group if isinstance(one, int))
    if available < used:
        yield (
            "ERROR: You are going to use more space than your drives have available.\n"
            f"Usage: {used} MiB of {available} MiB\nDiff: {available - used} MiB"
        )
    mounts = [part.mount for part in config.parts] + [one.mount for one in config.logical_volumes]
    if "/" not in mounts + [one.mount for one in config.subvolumes]:
        yield "ERROR: You dont have a partition for /"


def factor(config: Config) -> int:
    """How many times a drive's size an array of all drives holds."""
    count = len(config.drives)
    if not config.raid:
        return 1
    return max(1, {"0": count, "5": count - 1, "6": count - 2, "10": count // 2}.get(config.level, 1))


def sizes_on_a_drive(config: Config) -> list[int | str]:
    """The size of each partition on each drive: a striped array needs less of each than it holds."""
    found: list[int | str] = []
    for part in config.parts:
        mirrored = part.mount in ("/boot", "/boot/efi") or (part.mount == "swap" and config.level != "0")
        whole = mirrored or not isinstance(part.size, int)
        found.append(part.size if whole else int(part.size) // factor(config))
    return found
