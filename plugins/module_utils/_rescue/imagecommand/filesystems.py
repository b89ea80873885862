# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The file systems of the root device: which ones the image URL asks for, how they are made, mounted and grown."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .basics import MIB, Refused, Say, patience, run
from .root_device import Partition

# --- The layout of a disk, as the image URL says it, and the partitions it becomes.


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

    def __init__(self, text: str = "") -> None:
        self.volumes = [one_volume(part) for part in (text or DEFAULT_LAYOUT).split(",")]
        purposes = [volume.purpose for volume in self.volumes]
        for purpose in purposes:
            if purposes.count(purpose) > 1:
                raise Refused(f"image URL: layout=: {purpose} is there twice")
        if "/" not in purposes:
            raise Refused("image URL: layout=: the root / is missing; add /:ext4")
        if any(not volume.mib for volume in self.volumes[:-1]):
            raise Refused("image URL: layout=: only the last partition can take the rest; give the others a size")
        if len(self.volumes) > 12:
            raise Refused(f"image URL: layout=: {len(self.volumes)} partitions; 12 are the most")
        esp = next((one for one in self.volumes if one.purpose == "esp"), Volume("esp", "vfat", ESP_MIB))
        own = [one for one in self.volumes if one.purpose != "esp"]
        self.bios = platform.machine() == "x86_64"
        self.volumes = ([Volume("bios", "", 1)] if self.bios else []) + [esp, *own]

    def sizes(self, disk_size: int) -> list[int]:
        """Return the size of each partition in bytes; refuse a disk that is too small."""
        free = disk_size // MIB - 2  # a MiB before the first and behind the last one
        fixed = sum(one.mib for one in self.volumes)
        rest = self.volumes[-1]
        least = fixed + (LEAST_MIB[rest.fs] if not rest.mib else 0)
        if least > free:
            raise Refused(f"image URL: layout=: it needs {least + 2} MiB, the disk has {disk_size // MIB} MiB")
        return [(one.mib or free - fixed) * MIB for one in self.volumes]

    def mounts(self) -> list[str]:
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
            lines.append(f'size={size // MIB}MiB, type={kind}, name="{name}"')
        return "\n".join(lines) + "\n"

    def number(self, volume: Volume) -> int:
        return self.volumes.index(volume) + 1


def one_volume(text: str) -> Volume:
    """Read `swap:SIZE`, `esp:SIZE` or `MOUNT:FILE SYSTEM[:SIZE]`."""
    fields = text.split(":")
    if fields[0] in ("swap", "esp") and len(fields) == 2:
        purpose, fs, size = fields[0], {"swap": "swap", "esp": "esp"}[fields[0]], fields[1]
    elif fields[0].startswith("/") and len(fields) in (2, 3):
        purpose, fs, size = fields[0], fields[1], fields[2] if len(fields) == 3 else "rest"
    else:
        raise Refused(f"image URL: layout=: {text!r} is none of MOUNT:FILESYSTEM[:SIZE], swap:SIZE and esp:SIZE")
    if purpose.startswith("/"):
        if not re.fullmatch(r"/|(/[a-z0-9][a-z0-9._-]{0,30})+", purpose):
            raise Refused(f"image URL: layout=: {purpose!r} is no mount point such as / or /var")
        if purpose in NOT_MOUNTED or purpose.startswith(("/dev/", "/proc/", "/sys/", "/run/", "/etc/")):
            raise Refused(f"image URL: layout=: {purpose} cannot be a partition of its own")
        if fs not in FILE_SYSTEMS:
            raise Refused(f"image URL: layout=: {purpose}: {fs!r} is none of {', '.join(FILE_SYSTEMS)}")
    found = re.fullmatch("([1-9][0-9]{0,6})([MGT])", size)
    if not found and (size != "rest" or not purpose.startswith("/")):
        raise Refused(f"image URL: layout=: {purpose}: {size!r} is no size such as 512M or 20G")
    mib = int(found.group(1)) * UNITS[found.group(2)] if found else 0
    if found and mib < LEAST_MIB[fs]:
        raise Refused(f"image URL: layout=: {purpose}: {fs} needs at least {LEAST_MIB[fs]}M")
    return Volume(purpose, "vfat" if fs == "esp" else fs, mib)


# --- Makes file systems that also older systems than the rescue can read.


#: Ways to make each file system, the first one that the rescue's tool knows is taken. Features younger than the kernels
#: and boot loaders of current distributions are left out: a rescue is often newer than the image.
WAYS = {
    "ext4": (
        ("mkfs.ext4", "-q", "-F", "-O", "^orphan_file,^metadata_csum_seed"),
        ("mkfs.ext4", "-q", "-F", "-O", "^metadata_csum_seed"),
    ),
    "xfs": (
        ("mkfs.xfs", "-q", "-f", "-m", "bigtime=0,inobtcount=0", "-i", "nrext64=0"),
        ("mkfs.xfs", "-q", "-f", "-m", "bigtime=0,inobtcount=0"),
        ("mkfs.xfs", "-q", "-f"),
    ),
    "btrfs": (("mkfs.btrfs", "-q", "-f"),),
    "vfat": (("mkfs.vfat", "-F", "32", "-n", "ESP"),),
    "swap": (("mkswap", "--quiet"), ("mkswap",)),
}


def check_tools(kinds: set[str]) -> None:
    """Refuse to begin without the programs and the kernel for these file systems."""
    for kind in sorted(kinds):
        program = WAYS[kind][0][0]
        if shutil.which(program) is None:
            raise Refused(f"layout: {program} is missing in this rescue")
        if kind != "swap" and not kernel_knows(kind):
            raise Refused(f"layout: the kernel of this rescue cannot mount {kind}")


def kernel_knows(kind: str) -> bool:
    """Whether the kernel mounts a file system, perhaps after it has loaded a module."""

    def known() -> bool:
        return kind in Path("/proc/filesystems").read_text().split()

    if not known() and shutil.which("modprobe"):
        run("modprobe", "--quiet", kind, accept=(0, 1))
    return known()


def make_filesystem(kind: str, node: str, *options: str) -> None:
    failure = None
    for way in WAYS[kind]:
        try:
            run(*way, *options, node)
            return
        except Refused as error:
            failure = failure or error
    if failure:
        raise failure


# --- Mounts that vanish with the program.


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Give a private folder below /dev, the one place sure to allow device nodes; empty it afterwards."""
    work = Path(tempfile.mkdtemp(prefix=f".kubenode-{os.getpid()}-", dir="/dev"))
    run("mount", "-t", "tmpfs", "-o", "mode=0700", "kubenode", str(work))  # /dev itself may be small
    try:
        yield work
    finally:
        unmount(work)
        work.rmdir()


@contextlib.contextmanager
def mounted(partition: Partition, where: Path, options: str = "") -> Iterator[Path]:
    """Mount a partition and unmount it again, with everything written."""
    where.mkdir(exist_ok=True)
    wanted = ",".join(filter(None, ["nouuid" if partition.fs == "xfs" else "", options or "rw"]))
    run("mount", "-t", partition.fs, "-o", wanted, partition.node, str(where))
    try:
        yield where
    finally:
        unmount(where)


def unmount(where: Path) -> None:
    """Unmount, with everything written; wait for programs that still use it."""
    for _pause in patience():
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            ["umount", str(where)], capture_output=True, check=False
        )
        if done.returncode == 0:
            return
    raise Refused(f"{where} cannot be unmounted")


def grow_filesystem(partition: Partition, work: Path, say: Say) -> None:
    """Let the file system fill its partition."""
    if partition.fs.startswith("ext"):
        run("e2fsck", "-fp", partition.node, accept=(0, 1, 2))
        run("resize2fs", partition.node)
        return
    tool = {"xfs": ("xfs_growfs",), "btrfs": ("btrfs", "filesystem", "resize", "max")}[partition.fs]
    if shutil.which(tool[0]) is None:
        say(f"{partition} keeps its size: {tool[0]} is missing in this rescue")
        return
    with mounted(partition, work / "root") as top:
        run(*tool, str(top))
