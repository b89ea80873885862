# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot loaders of the live image: isolinux for BIOS, GRUB in a FAT image for UEFI; their areas for arguments."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.images import ImageError

AREA = 1139  # bytes of an area, as in CoreOS of x86_64
_MARK = b"@ARGUMENTS@"
_GRUB_MODULES = (
    "configfile",
    "fat",
    "iso9660",
    "linux",
    "normal",
    "part_gpt",
    "part_msdos",
    "search",
    "search_fs_file",
)


@dataclass(frozen=True)
class Settings:
    """A boot loader's settings with the arguments in them, and where the area begins in the text."""

    text: bytes
    offset: int


def settings(template: Path, arguments: str) -> Settings:
    """Fill in the arguments: they end with a line break, the rest of the area is a comment."""
    text = template.read_bytes()
    if text.count(_MARK) != 1:
        raise ImageError(f"{template.name} has not exactly one {_MARK.decode()}")
    content = (arguments.encode() + b"\n").ljust(AREA, b"#")
    return Settings(text.replace(_MARK, content), text.index(_MARK))


def efi_image(early: Path, scratch: Path, epoch: int) -> bytes:
    """A FAT file system with GRUB as UEFI looks for it on removable media."""
    program, image = scratch / "BOOTX64.EFI", scratch / "efiboot.img"
    _run("grub-mkimage", "-O", "x86_64-efi", "-p", "/EFI/fedora", "-c", early, "-o", program, *_GRUB_MODULES)
    sectors = (program.stat().st_size // 512 + 512) // 64 * 64
    _run(
        "mformat", "-C", "-i", image, "-N", "4c414231", "-v", "EFI", "-T", sectors, "-h", 2, "-s", 32, "::", epoch=epoch
    )
    _run("mmd", "-i", image, "::/EFI", "::/EFI/BOOT", epoch=epoch)
    os.utime(program, (epoch, epoch))
    _run("mcopy", "-m", "-i", image, program, "::/EFI/BOOT/BOOTX64.EFI", epoch=epoch)
    return image.read_bytes()


def _run(program: str, *arguments: object, epoch: int = 0) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "TZ": "UTC"}
    done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"{program} failed (status {done.returncode}): {done.stderr.strip()[-500:]}")
