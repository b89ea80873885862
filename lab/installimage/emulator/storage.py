# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partitions, arrays, volume groups, file systems and mounts, and the fstab that names them."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import host, teardown
from .config import ALL, Config
from .layout import Array, Layout, Partition
from .screen import Failed, Steps, debug

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
        host.run(
            "sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", "--wipe", "always", "--wipe-partitions", "always",
            drive, text=self.layout.table(),
        )  # fmt: skip
        host.sync_partitions(drive, {one.number: (one.start, one.length) for one in self.layout.partitions})
        for one in self.layout.partitions:
            host.run("wipefs", "--all", "--force", host.partition_node(drive, one.number))

    def find_volumes(self) -> None:
        """The list of what will be formatted and mounted, in the order of the config."""
        device = {array.partition.number: array.name for array in self.arrays}
        for one in self.layout.partitions:
            if one.part is not None and one.kind != "bios_grub":
                plain = host.partition_node(self.config.drives[0], one.number)
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
            members = [host.partition_node(drive, array.partition.number) for drive in self.config.drives]
            options = ["--run", f"--metadata={array.metadata}", f"--level={array.level}", "--homehost=any"]
            if self.config.assume_clean and array.level in ("1", "6", "10"):
                options.append("--assume-clean")
            if self.config.raid_layout and array.level in ("5", "6", "10"):
                options.append(f"--layout={self.config.raid_layout}")
            host.run("mdadm", "--create", array.name, *options, f"--raid-devices={len(members)}", *members)
            host.settle()
        if _SPEED_LIMIT.exists():
            _SPEED_LIMIT.write_text("0\n")

    def encrypt(self) -> None:
        """Put LUKS on the partitions (or arrays) that are to have it, and open them."""
        password = f"{self.config.crypt_password}\n"
        parts = [one.part for one in self.layout.partitions if one.part is not None and one.kind != "bios_grub"]
        host.run("modprobe", "dm-crypt", check=False)
        for part, volume in zip(parts, self.volumes, strict=False):
            if part.crypt:
                cipher = ("--cipher", "aes-xts-plain64", "--key-size", "256", "--hash", "sha256", "--iter-time", "6000")
                host.run("cryptsetup", *cipher, "--batch-mode", "luksFormat", volume.device, text=password)
                found = uuid(volume.device)
                host.run("cryptsetup", "--batch-mode", "luksOpen", volume.device, f"luks-{found}", text=password)
                self.crypttab += f"luks-{found} UUID={found} none luks\n"
                volume.device = f"/dev/mapper/luks-{found}"
        host.settle()

    def make_volumes(self) -> None:
        """Volume groups and logical volumes."""
        teardown.remove_volume_groups(self.config.preserve_groups)
        groups = [part.filesystem for part in self.config.parts if part.mount == "lvm"]
        devices = [volume.device for volume in self.volumes if "LVM" in volume.comment]
        for group, device in zip(groups, devices, strict=True):
            host.run("wipefs", "--all", "--force", device)
            host.run("pvcreate", "--force", "--force", "--yes", device)
            # The real one looks for the name in the whole list: in longer names and other columns, too.
            there = re.search(group, host.run("vgs", "--noheadings", check=False))
            host.run("vgextend" if there else "vgcreate", group, device)
        last = {volume.group: volume.name for volume in self.config.logical_volumes}
        for volume in self.config.logical_volumes:
            size = ["--extents", "100%FREE"] if volume.size == ALL else ["--size", f"{volume.size}M"]
            if volume.name == last[volume.group] and isinstance(volume.size, int) and _free(volume.group) < volume.size:
                debug(f"# Resize LV {volume.name} in VG {volume.group} because of not enough free space")
                size = ["--extents", "100%FREE"]
            host.run("lvcreate", "--yes", "--wipesignatures", "y", "--name", volume.name, *size, volume.group)
        host.settle()

    def format(self, steps: Steps) -> None:
        """Make the file systems."""
        for volume in self.volumes:
            if volume.formatted:
                with steps.part(f"formatting {volume.device} with {volume.filesystem}"):
                    _appear(volume.device)
                    host.run(*_FORMAT[volume.filesystem], volume.device)
        host.settle()

    def make_subvolumes(self) -> None:
        """The subvolumes of btrfs volumes."""
        for volume in self.volumes:
            if volume.mount.startswith("btrfs."):
                work = self.target / "btrfs"
                work.mkdir(parents=True)
                host.run("mount", volume.device, str(work))
                for subvolume in self.config.subvolumes:
                    if subvolume.volume == volume.mount:
                        host.run("btrfs", "subvolume", "create", str(work / subvolume.name.lstrip("/")))
                host.run("umount", str(work))
                work.rmdir()

    def mount(self) -> None:
        """Mount everything at its place below the target, outer folders first.

        The mounts are private: services with a mount namespace of their own would keep the drives busy for ever.
        """
        host.run("mount", "--bind", str(self.target), str(self.target))
        host.run("mount", "--make-private", str(self.target))
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
            host.run("mount", "-t", kind, *(("-o", options) if options else ()), source, str(folder))
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
            for _try in host.tries(120):
                with suppress(Failed):
                    host.run("umount", "--recursive", str(folder))
                    break
        self._mounted.clear()
        if self.arrays and _SPEED_LIMIT.exists():
            _SPEED_LIMIT.write_text("200000\n")


def _free(group: str) -> int:
    """MiB that are left in a volume group."""
    found = host.run("vgs", "--noheadings", "--units", "m", "--nosuffix", "--options", "vg_free", group)
    return int(float(found.strip() or 0))


def vfat() -> bool:
    """Whether this kernel can mount an EFI system partition."""
    if not host.in_container():
        host.run("modprobe", "--quiet", "vfat", check=False)
    return "\tvfat\n" in Path("/proc/filesystems").read_text()


def uuid(device: str) -> str:
    """The UUID of the file system on a device, read from the device itself."""
    found = host.run("blkid", "--probe", "--match-tag", "UUID", "--output", "value", device).strip()
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
    for _try in host.tries(300):
        if host.block_number(device):
            return
    debug(f"{device} did not appear within {time.monotonic() - started:.0f} s")
    raise Failed("device")
