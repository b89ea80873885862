# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partitions, arrays, volume groups, file systems and mounts, and the fstab that names them."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import rescue_host
from .config import ALL, Config, Part, sizes_on_a_drive
from .rescue_host import Failed, Steps, debug, say


def stop_everything() -> bool:
    """Unmount all drives and stop LVM and arrays of every system; False when something stays in use."""
    if not _unmount_all():
        return False
    rescue_host.run("swapoff", "--all", check=False)
    if not rescue_host.in_container():
        for group in _words("vgs", "--noheadings", "--options", "vg_name"):
            rescue_host.run("vgchange", "--activate", "n", group, check=False)
        rescue_host.run("dmsetup", "remove_all", check=False)
        for line in rescue_host.run("mdadm", "--detail", "--scan", check=False).splitlines():
            rescue_host.run("mdadm", "--stop", line.split()[1], check=False)
    return True


def _unmount_all() -> bool:
    """The mounted drives of this machine; a container also sees mounts of its host, under numbers it lacks."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        number, point, source = fields[2], _plain(fields[4]), _plain(fields[fields.index("-") + 2])
        ours = rescue_host.block_number(source) == number or (_is_btrfs(fields) and not rescue_host.in_container())
        if source.startswith("/dev/") and ours:
            points.append(point)
    for point in reversed(points):
        debug(f"unmounting {point}")
        rescue_host.run("umount", point, check=False)
    still = [point for point in points if os.path.ismount(point)]
    if still:
        say("ERROR unmounting device(s):")
        say(" ".join(still))
        say("Cannot continue, device(s) seem to be in use.")
        say("Please unmount used devices manually or reboot the rescuesystem and retry.")
    return not still


def _plain(word: str) -> str:
    """A word of mountinfo as it was before the kernel escaped it."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _is_btrfs(fields: list[str]) -> bool:
    """btrfs numbers its mounts as it likes."""
    return fields[fields.index("-") + 1] == "btrfs"


def delete_partitions(drives: list[str]) -> None:
    """Erase the partition tables and the boot code of drives, and the superblocks of arrays they were part of.

    udev holds still meanwhile: each write to a member would let it put the array together again.
    """
    with rescue_host.udev_still():
        if not stop_everything():
            raise Failed("in use")
        for drive in drives:
            _erase(drive)
    rescue_host.settle()


def _erase(drive: str) -> None:
    if not rescue_host.in_container():
        # The partitions first: they are gone with the table.
        for node in (*(rescue_host.partition_node(drive, number) for number in rescue_host.partitions(drive)), drive):
            rescue_host.run("mdadm", "--zero-superblock", node, check=False)
            rescue_host.run("wipefs", "--all", "--force", node, check=False)
    rescue_host.run("sgdisk", "--zap-all", drive, check=False)
    try:
        with open(drive, "r+b", buffering=0) as disk:
            for _mebibyte in range(10):
                disk.write(bytes(1 << 20))
            os.fsync(disk.fileno())
    except OSError as error:
        debug(f"{drive}: {error}")
        raise Failed("erase") from error
    rescue_host.sync_partitions(drive, {})


def remove_volume_groups(preserve: str) -> None:
    """Remove ALL volume groups of the machine but those whose name matches, also on drives that are not used."""
    for group in _words("vgs", "--noheadings", "--options", "vg_name"):
        if preserve and re.search(preserve, group):
            debug(f"Not removing VG {group}")
            continue
        rescue_host.run("lvremove", "--force", group, check=False)
        rescue_host.run("vgremove", "--force", group, check=False)
    for line in rescue_host.run("pvs", "--noheadings", "--options", "pv_name,vg_name", check=False).splitlines():
        volume, *group_name = line.split()
        if not (preserve and re.search(preserve, group_name[0] if group_name else "")):
            rescue_host.run("pvremove", "--force", "--force", "--yes", volume, check=False)


def _words(*command: str) -> list[str]:
    return rescue_host.run(*command, check=False).split()


SECTOR = 512
MIB = (1 << 20) // SECTOR  # sectors
_TWO_TIB = 1 << 41
_GPT = {
    "linux": "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
    "swap": "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F",
    "lvm": "E6D6D379-F507-44C2-A23C-238F2A3DF928",
    "raid": "A19D880F-05FC-4D3B-A006-743F0F84911E",
    "esp": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
    "bios_grub": "21686148-6449-6E6F-744E-656564454649",
}
_DOS = {"linux": "83", "swap": "82", "lvm": "8e", "raid": "fd", "esp": "ef"}


@dataclass(frozen=True)
class Partition:
    """One partition; start and length in sectors of 512 bytes."""

    number: int
    start: int
    length: int
    kind: str  # a key of the tables above
    part: Part | None = None  # None: room for the boot loader


@dataclass(frozen=True)
class Array:
    """A software RAID over the same partition of each drive."""

    name: str  # /dev/md/N
    level: str
    metadata: str
    partition: Partition


@dataclass(frozen=True)
class Layout:
    """What every used drive gets."""

    gpt: bool
    partitions: tuple[Partition, ...]

    def table(self) -> str:
        """The partition table in sfdisk's words."""
        types = _GPT if self.gpt else _DOS
        lines = ["label: gpt" if self.gpt else "label: dos", "unit: sectors"]
        for one in self.partitions:
            lines.append(f"{one.number}: start={one.start}, size={one.length}, type={types[one.kind]}")
        return "\n".join(lines) + "\n"


def plan(config: Config, drive_bytes: int, uefi: bool) -> Layout:
    """Lay out a drive of this size (the smallest, where there are several)."""
    gpt = uefi or config.force_gpt or drive_bytes > _TWO_TIB or len(config.parts) > 3
    position = 2 * MIB if gpt else MIB
    end = drive_bytes // SECTOR // MIB * MIB - MIB  # room for the second table and for array superblocks
    found = []
    for number, (part, size) in enumerate(zip(config.parts, sizes_on_a_drive(config), strict=True), 1):
        length = end - position if size == ALL else min(int(size) * MIB, end - position)
        found.append(Partition(number, position, length, _kind(part, config), part))
        position += length
    if gpt and not uefi and not any(one.kind == "bios_grub" for one in found):
        found.append(Partition(len(found) + 1, MIB, MIB, "bios_grub"))
    return Layout(gpt, tuple(found))


def _kind(part: Part, config: Config) -> str:
    if part.filesystem == "esp" or part.filesystem == "bios_grub":
        return part.filesystem
    if config.raid:
        return "raid"
    if part.mount == "lvm":
        return "lvm"
    return "swap" if part.filesystem == "swap" else "linux"


def arrays(config: Config, layout: Layout) -> list[Array]:
    """The arrays, one for each partition; what a boot loader or a firmware reads is always mirrored."""
    found: list[Array] = []
    for partition in layout.partitions if config.raid else ():
        part = partition.part
        if part is None or partition.kind == "bios_grub":
            continue
        mirrored = part.mount in ("/boot", "/boot/efi") or (part.mount == "swap" and config.level != "0")
        # A firmware knows nothing of arrays: with the superblock at the end, the ESP looks like a plain FAT to it.
        metadata = "1.0" if part.mount == "/boot/efi" else "1.2"
        found.append(Array(f"/dev/md/{len(found)}", "1" if mirrored else config.level, metadata, partition))
    return found


_SPEED_LIMIT = Path("/proc/sys/dev/raid/speed_limit_max")
_FORMAT = {
    "ext2": ("mkfs.ext2", "-q", "-F"),
    "ext3": ("mkfs.ext3", "-q", "-F"),
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "reiserfs": ("mkfs", "-t", "reiserfs", "-q", "-f"),  # which few rescues have
    "swap": ("mkswap", "--force"),
    "esp": ("mkfs.vfat", "-F", "32"),
}


@dataclass
class Volume:
    """Something to format and mount: a partition, an array or a logical volume."""

    device: str
    mount: str
    filesystem: str
    comment: str = ""  # for the fstab, of a device that is not mounted itself

    @property
    def formatted(self) -> bool:
        """Whether it gets a file system (or swap)."""
        return self.filesystem in _FORMAT


class Storage:
    """The drives of one installation, from the empty table to the mounted target."""

    def __init__(self, config: Config, layout: Layout, arrays: list[Array], target: Path) -> None:
        self.config = config
        self.layout = layout
        self.arrays = arrays
        self.target = target
        self.volumes: list[Volume] = []
        self.crypttab = ""
        self._mounted: list[Path] = []

    def partition(self, drive: str) -> None:
        """Write the table of a drive and wait for its partitions."""
        rescue_host.run(
            "sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", "--wipe", "always", "--wipe-partitions", "always",
            drive, text=self.layout.table(),
        )  # fmt: skip
        rescue_host.sync_partitions(drive, {one.number: (one.start, one.length) for one in self.layout.partitions})
        for one in self.layout.partitions:
            rescue_host.run("wipefs", "--all", "--force", rescue_host.partition_node(drive, one.number))

    def find_volumes(self) -> None:
        """The list of what will be formatted and mounted, in the order of the config."""
        device = {array.partition.number: array.name for array in self.arrays}
        for one in self.layout.partitions:
            if one.part is not None and one.kind != "bios_grub":
                plain = rescue_host.partition_node(self.config.drives[0], one.number)
                self._add(device.get(one.number, plain), one)
        for volume in self.config.logical_volumes:
            self.volumes.append(Volume(f"/dev/{volume.group}/{volume.name}", volume.mount, volume.filesystem))

    def _add(self, device: str, partition: Partition) -> None:
        assert partition.part is not None
        part = partition.part
        if part.mount == "lvm":
            self.volumes.append(Volume(device, "", "", f"belongs to LVM volume group '{part.filesystem}'"))
        elif part.is_btrfs_volume:
            self.volumes.append(Volume(device, part.mount, "btrfs", f"belongs to btrfs volume '{part.mount}'"))
        else:
            self.volumes.append(Volume(device, part.mount, part.filesystem))

    def make_arrays(self) -> None:
        """Put the arrays together; their first synchronisation waits until the installation is over."""
        for array in self.arrays:
            members = [rescue_host.partition_node(drive, array.partition.number) for drive in self.config.drives]
            options = ["--run", f"--metadata={array.metadata}", f"--level={array.level}", "--homehost=any"]
            if self.config.assume_clean and array.level in ("1", "6", "10"):
                options.append("--assume-clean")
            if self.config.raid_layout and array.level in ("5", "6", "10"):
                options.append(f"--layout={self.config.raid_layout}")
            rescue_host.run("mdadm", "--create", array.name, *options, f"--raid-devices={len(members)}", *members)
            rescue_host.settle()
        if _SPEED_LIMIT.exists():
            _SPEED_LIMIT.write_text("0\n")

    def encrypt(self) -> None:
        """Put LUKS on the partitions (or arrays) that are to have it, and open them."""
        password = f"{self.config.crypt_password}\n"
        parts = [one.part for one in self.layout.partitions if one.part is not None and one.kind != "bios_grub"]
        rescue_host.run("modprobe", "dm-crypt", check=False)
        for part, volume in zip(parts, self.volumes, strict=False):
            if part.crypt:
                cipher = ("--cipher", "aes-xts-plain64", "--key-size", "256", "--hash", "sha256", "--iter-time", "6000")
                rescue_host.run("cryptsetup", *cipher, "--batch-mode", "luksFormat", volume.device, text=password)
                found = uuid(volume.device)
                rescue_host.run("cryptsetup", "--batch-mode", "luksOpen", volume.device, f"luks-{found}", text=password)
                self.crypttab += f"luks-{found} UUID={found} none luks\n"
                volume.device = f"/dev/mapper/luks-{found}"
        rescue_host.settle()

    def make_volumes(self) -> None:
        """Volume groups and logical volumes."""
        remove_volume_groups(self.config.preserve_groups)
        groups = [part.filesystem for part in self.config.parts if part.mount == "lvm"]
        devices = [volume.device for volume in self.volumes if "LVM" in volume.comment]
        for group, device in zip(groups, devices, strict=True):
            rescue_host.run("wipefs", "--all", "--force", device)
            rescue_host.run("pvcreate", "--force", "--force", "--yes", device)
            # The real one looks for the name in the whole list: in longer names and other columns, too.
            there = re.search(group, rescue_host.run("vgs", "--noheadings", check=False))
            rescue_host.run("vgextend" if there else "vgcreate", group, device)
        last = {volume.group: volume.name for volume in self.config.logical_volumes}
        for volume in self.config.logical_volumes:
            size = ["--extents", "100%FREE"] if volume.size == ALL else ["--size", f"{volume.size}M"]
            if volume.name == last[volume.group] and isinstance(volume.size, int) and _free(volume.group) < volume.size:
                debug(f"# Resize LV {volume.name} in VG {volume.group} because of not enough free space")
                size = ["--extents", "100%FREE"]
            rescue_host.run("lvcreate", "--yes", "--wipesignatures", "y", "--name", volume.name, *size, volume.group)
        rescue_host.settle()

    def format(self, steps: Steps) -> None:
        for volume in self.volumes:
            if volume.formatted:
                with steps.part(f"formatting {volume.device} with {volume.filesystem}"):
                    _appear(volume.device)
                    rescue_host.run(*_FORMAT[volume.filesystem], volume.device)
        rescue_host.settle()

    def make_subvolumes(self) -> None:
        for volume in self.volumes:
            if volume.mount.startswith("btrfs."):
                work = self.target / "btrfs"
                work.mkdir(parents=True)
                rescue_host.run("mount", volume.device, str(work))
                for subvolume in self.config.subvolumes:
                    if subvolume.volume == volume.mount:
                        rescue_host.run("btrfs", "subvolume", "create", str(work / subvolume.name.lstrip("/")))
                rescue_host.run("umount", str(work))
                work.rmdir()

    def mount(self) -> None:
        """Mount everything at its place below the target, outer folders first.

        The mounts are private: services with a mount namespace of their own would keep the drives busy for ever.
        """
        rescue_host.run("mount", "--bind", str(self.target), str(self.target))
        rescue_host.run("mount", "--make-private", str(self.target))
        self._mounted.append(self.target)
        wanted = [(one.mount, one.device, one.filesystem, "") for one in self.volumes if one.mount.startswith("/")]
        device = {one.mount: one.device for one in self.volumes}
        for subvolume in self.config.subvolumes:
            name = subvolume.name.lstrip("/")
            wanted.append((subvolume.mount, device[subvolume.volume], "btrfs", f"subvol={name}"))
        for point, source, filesystem, options in sorted(wanted, key=lambda one: one[0].rstrip("/").count("/")):
            folder = self.target / point.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            if filesystem == "esp" and not vfat():
                debug(f"this kernel has no vfat: {source} stays unmounted")
                continue
            kind = "vfat" if filesystem == "esp" else filesystem
            rescue_host.run("mount", "-t", kind, *(("-o", options) if options else ()), source, str(folder))
            self._mounted.append(folder)

    def where(self, path: str) -> tuple[str, str]:
        """The device that a path of the target lies on, and the path as seen from the top of that file system."""
        found = [(one.mount, one.device, "") for one in self.volumes if one.mount.startswith("/")]
        device = {one.mount: one.device for one in self.volumes}
        found += [(one.mount, device[one.volume], f"/{one.name.strip('/')}") for one in self.config.subvolumes]
        fitting = [one for one in found if f"{path}/".startswith(f"{one[0].rstrip('/')}/")]
        mount, name, top = max(fitting, key=lambda one: len(one[0]))
        return name, f"{top}/{path[len(mount) :].lstrip('/')}"

    def fstab(self) -> str:
        """The fstab of the new system; devices by their file system's UUID, since kernel names swap."""
        lines = ["proc /proc proc defaults 0 0"]
        for volume in self.volumes:
            name = _name(volume)
            if volume.comment:
                lines.append(f"# {volume.device} {volume.comment}")
            elif volume.filesystem == "swap":
                lines.append(f"{name} none swap sw 0 0")
            elif volume.filesystem == "esp":
                lines.append(f"{name} {volume.mount} vfat umask=0077 0 1")
            elif volume.filesystem == "none":
                lines.append(f"# {volume.device} has no filesystem defined")
            else:
                lines.append(f"{name} {volume.mount} {volume.filesystem} defaults 0 0")
        volumes = {one.mount: one for one in self.volumes}
        for subvolume in self.config.subvolumes:
            name = _name(volumes[subvolume.volume])
            lines.append(f"{name} {subvolume.mount} btrfs defaults,subvol={subvolume.name.lstrip('/')} 0 0")
        return "\n".join(lines) + "\n"

    def unmount(self) -> None:
        """Take the target apart; what was written is on the drives afterwards."""
        for folder in reversed(self._mounted):
            for _try in rescue_host.tries(120):
                with suppress(Failed):
                    rescue_host.run("umount", "--recursive", str(folder))
                    break
        self._mounted.clear()
        if self.arrays and _SPEED_LIMIT.exists():
            _SPEED_LIMIT.write_text("200000\n")


def _free(group: str) -> int:
    """MiB that are left in a volume group."""
    found = rescue_host.run("vgs", "--noheadings", "--units", "m", "--nosuffix", "--options", "vg_free", group)
    return int(float(found.strip() or 0))


def vfat() -> bool:
    """Whether this kernel can mount an EFI system partition."""
    if not rescue_host.in_container():
        rescue_host.run("modprobe", "--quiet", "vfat", check=False)
    return "\tvfat\n" in Path("/proc/filesystems").read_text()


def uuid(device: str) -> str:
    """The UUID of the file system on a device, read from the device itself."""
    found = rescue_host.run("blkid", "--probe", "--match-tag", "UUID", "--output", "value", device).strip()
    if not found:
        debug(f"{device} has no file system UUID")
        raise Failed("uuid")
    return found


def _name(volume: Volume) -> str:
    if volume.comment.startswith("belongs to LVM") or volume.filesystem == "none":
        return volume.device
    logical = volume.device.count("/") == 3 and not volume.device.startswith("/dev/md/")
    return volume.device if logical else f"UUID={uuid(volume.device)}"


def _appear(device: str) -> None:
    started = time.monotonic()
    for _try in rescue_host.tries(300):
        if rescue_host.block_number(device):
            return
    debug(f"{device} did not appear within {time.monotonic() - started:.0f} s")
    raise Failed("device")
