# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB, made by the new system's own tools: on every drive by BIOS, in the EFI system partition by UEFI."""

from __future__ import annotations

from pathlib import Path

from . import host
from .screen import Failed, debug
from .storage import Storage, uuid, vfat
from .target import Target

_EFI_MODULES = (
    "part_gpt", "part_msdos", "fat", "ext2", "xfs", "btrfs", "normal", "configfile", "linux", "search",
    "search_fs_uuid", "serial", "terminal", "echo", "test", "boot", "all_video", "gzio",
)  # fmt: skip


def install(target: Target, storage: Storage, uefi: bool) -> None:
    """Make the new system start by itself."""
    if uefi and not vfat():
        _write_esp_unmounted(target, storage)
    elif uefi:
        command = ["grub-install", "--target=x86_64-efi", "--efi-directory=/boot/efi", "--no-floppy", "--recheck"]
        # The removable path needs no boot entry, so a firmware finds it also after its memory was cleared.
        target.run(*command, "--no-nvram", "--bootloader-id=debian")
        target.run(*command, "--no-nvram", "--removable")
    else:
        for drive in storage.config.used_drives:
            target.run("grub-install", "--target=i386-pc", "--no-floppy", "--recheck", drive)
    target.file("/boot/grub").mkdir(parents=True, exist_ok=True)
    target.run("grub-mkconfig", "-o", "/boot/grub/grub.cfg")
    if not target.file("/boot/grub/grub.cfg").exists():
        debug("grub-mkconfig wrote nothing")
        raise Failed("grub.cfg")
    target.file("/boot/grub/device.map").unlink(missing_ok=True)


def _write_esp_unmounted(target: Target, storage: Storage) -> None:
    """Put GRUB into a FAT that this kernel cannot mount, with mtools."""
    boot, prefix = storage.where("/boot/grub")
    target.write("/run/early.cfg", f"search.fs_uuid {uuid(boot)} root\nset prefix=($root){prefix}\n")
    target.run(
        "grub-mkimage", "--format=x86_64-efi", f"--prefix={prefix}", "--config=/run/early.cfg",
        "--output=/run/grub.efi", *_EFI_MODULES,
    )  # fmt: skip
    target.run("mkdir", "-p", "/boot/grub")
    target.run("cp", "-r", "/usr/lib/grub/x86_64-efi", "/boot/grub/")
    esp = next(volume.device for volume in storage.volumes if volume.filesystem == "esp")
    loader: Path = target.file("/run/grub.efi")
    settings = target.file("/run/mtoolsrc")
    settings.write_text("default_codepage=367\n")  # ASCII: the rescue has no tables for others
    mtools = ("env", f"MTOOLSRC={settings}")
    host.run(*mtools, "mmd", "-D", "s", "-i", esp, "::EFI", "::EFI/BOOT", "::EFI/debian")
    for path in ("::EFI/BOOT/BOOTX64.EFI", "::EFI/debian/grubx64.efi"):
        host.run(*mtools, "mcopy", "-o", "-i", esp, str(loader), path)
