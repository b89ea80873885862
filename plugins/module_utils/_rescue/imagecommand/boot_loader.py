# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Puts GRUB onto the disk, with the new system's own programs, for the firmware of this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from .basics import Refused, run
from .filesystems import WAYS, kernel_knows
from .root_device import Disk, Partition

# --- The firmware of this machine, and the boot loaders that go onto the disk.


#: By architecture: what GRUB calls its half for UEFI and for BIOS.
GRUB_HALVES = {"x86_64": ("x86_64-efi", "i386-pc"), "aarch64": ("arm64-efi", "")}


class Firmware:
    """How this machine boots, and what can be written for the other way, so that the disk boots anywhere."""

    def __init__(self) -> None:
        machine = platform.machine()
        if machine not in GRUB_HALVES:
            raise Refused(f"this machine is a {machine}; known are {', '.join(GRUB_HALVES)}")
        self.efi_half, self.bios_half = GRUB_HALVES[machine]
        self.uefi = Path("/sys/firmware/efi").is_dir() or not self.bios_half
        self.esp = kernel_knows("vfat") and shutil.which(WAYS["vfat"][0][0]) is not None
        if self.uefi and not self.esp:
            raise Refused("this machine boots by UEFI, and this rescue has no vfat or no mkfs.vfat for its ESP")

    @property
    def needed(self) -> str:
        """The half of GRUB that this machine cannot boot without."""
        return self.efi_half if self.uefi else self.bios_half

    def halves(self, found: set[str]) -> tuple[bool, bool]:
        """Return which halves to install, (for UEFI, for BIOS), of those that the image has."""
        return self.esp and self.efi_half in found, bool(self.bios_half) and self.bios_half in found


# --- Runs programs of the new system in it; of the rescue they see the disk alone.


NODES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "DEBIAN_FRONTEND": "noninteractive",
    "GRUB_DISABLE_OS_PROBER": "true",
}


@contextlib.contextmanager
def entered(top: Path, disk: Disk, partitions: list[Partition]) -> Iterator[Callable[..., str]]:
    """Give a mounted root a /dev of its own, /proc, /sys, /run and /tmp; yield a function that runs its programs."""
    with contextlib.ExitStack() as stack:
        for name, command in (
            ("dev", ("-t", "tmpfs", "-o", "mode=0755,nosuid", "dev")),
            ("proc", ("-t", "proc", "proc")),
            ("sys", ("--rbind", "/sys")),
            ("run", ("-t", "tmpfs", "-o", "mode=0755,nosuid,nodev", "run")),
            ("tmp", ("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev", "tmp")),
        ):
            folder = top / name
            if folder.is_symlink():
                raise Refused(f"new root file system: /{name} is a link")
            folder.mkdir(exist_ok=True)
            run("mount", *command, str(folder))
            stack.callback(leave, folder)
        furnish(top / "dev", disk, partitions)
        # how libudev is to read /sys is the rescue's word; nothing else of its environment, which may hold secrets
        kept = {name: value for name, value in os.environ.items() if name.startswith("SYSTEMD_")}

        def call(*command: str) -> str:
            done = subprocess.run(  # pylint: disable=ansible-bad-function
                ("chroot", str(top), *command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False, env={**kept, **ENVIRONMENT},
            )  # fmt: skip
            if done.returncode:
                text = "; ".join(done.stdout.strip().splitlines()[-3:])
                raise Refused(f"{command[0]} in the new system ended with exit code {done.returncode}: {text}")
            return done.stdout

        yield call


def leave(folder: Path) -> None:
    """Take a mount away, also one that another program still uses."""
    run("umount", "--recursive", "--lazy", str(folder))


def furnish(dev: Path, disk: Disk, partitions: list[Partition]) -> None:
    """Fill a /dev: the usual nodes, the disk, its partitions, and the links by which GRUB knows them."""
    for name, major, minor in NODES:
        with contextlib.suppress(PermissionError):  # a rescue in a container; /dev/null is always there
            os.mknod(str(dev / name), stat.S_IFCHR | 0o600, os.makedev(major, minor))
            (dev / name).chmod(0o666)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target)
    (dev / "shm").mkdir()
    nodes = {disk.path: Path(disk.path).stat().st_rdev}
    for partition in partitions:
        nodes[partition.node] = Path(partition.node).stat().st_rdev
        for folder, tag in (("by-uuid", partition.uuid), ("by-partuuid", partition.partuuid)):
            if tag:
                link = dev / "disk" / folder / tag
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(partition.node)
    for path, number in nodes.items():
        node = dev / Path(path).relative_to("/dev")
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(str(node), stat.S_IFBLK | 0o600, number)


# --- Puts GRUB onto the disk with the new system's own programs.


def grub_program(top: Path, name: str) -> str:
    """Return the new system's grub-NAME, under the name its distribution gives it."""
    for prefix in ("grub", "grub2"):
        for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
            if os.access(str(top) + f"{folder}/{prefix}-{name}", os.X_OK):
                return f"{prefix}-{name}"
    raise Refused(f"image: it has no grub-{name}; install GRUB in it")


def write_menu(top: Path, call: Callable[..., str]) -> None:
    """Write grub.cfg."""
    program = grub_program(top, "mkconfig")
    folder = f"/boot/{program.partition('-')[0]}"
    call("mkdir", "-p", folder)
    call(program, "-o", folder + "/grub.cfg")
    menu = Path(str(top) + folder + "/grub.cfg")
    if not menu.is_file() or b"linux" not in menu.read_bytes():
        raise Refused(f"image: {program} found no kernel to start")


def install_efi(top: Path, call: Callable[..., str], half: str) -> None:
    """Install GRUB into the ESP, which is mounted, under the name that needs no boot entry in the firmware."""
    call(
        grub_program(top, "install"), "--target=" + half, "--efi-directory=/boot/efi", "--no-nvram", "--removable",
        "--recheck", "--no-floppy",
    )  # fmt: skip


def install_bios(top: Path, call: Callable[..., str], half: str, disk: str) -> None:
    """Install GRUB for a BIOS; from its last write on the disk boots there, so all else is written before."""
    os.sync()
    call(grub_program(top, "install"), "--target=" + half, "--recheck", "--no-floppy", disk)
