# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB, made by the new system's own tools: on every drive by BIOS, in the EFI system partition by UEFI."""

from __future__ import annotations

import re
from pathlib import Path

from . import host
from .screen import debug, disturb, quote
from .storage import Storage, uuid, vfat
from .target import Target

_EFI_MODULES = (
    "part_gpt", "part_msdos", "fat", "ext2", "xfs", "btrfs", "normal", "configfile", "linux", "search",
    "search_fs_uuid", "serial", "terminal", "echo", "test", "boot", "all_video", "gzio",
)  # fmt: skip
# What it changes in /etc/default/grub, where these lines are there.
_DEFAULTS = {
    "GRUB_HIDDEN_TIMEOUT": "5",
    "GRUB_HIDDEN_TIMEOUT_QUIET": "false",
    "GRUB_CMDLINE_LINUX_DEFAULT": '"consoleblank=0"',
}


def install(target: Target, storage: Storage, uefi: bool) -> None:
    """Make the new system start by itself, in the real one's order; only what grub-install says by UEFI decides."""
    if storage.config.bootloader not in ("grub", "GRUB"):
        debug(f"# nothing is called like {storage.config.bootloader} here")  # its check takes "Grub", its work does not
        return
    _set_defaults(target.file("/etc/default/grub"))
    old = target.file("/boot/grub/grub.cfg")
    if old.exists():
        old.unlink()
    else:
        disturb(f"rm: cannot remove '{old}': No such file or directory")
    target.run("grub-mkconfig", "-o", "/boot/grub/grub.cfg", check=False)
    if uefi and not vfat():
        _write_esp_unmounted(target, storage)
    elif uefi:
        # The removable path needs no boot entry, so a firmware finds it also after its memory was cleared.
        options = ("--no-floppy", "--no-nvram", "--removable")
        target.run("grub-install", "--target=x86_64-efi", "--efi-directory=/boot/efi", *options)
    else:
        for drive in storage.config.used_drives:
            target.run("grub-install", "--no-floppy", "--recheck", drive, check=False)
    target.file("/boot/grub/device.map").unlink(missing_ok=True)


def _set_defaults(file: Path) -> None:
    try:
        text = file.read_text()
    except OSError as error:
        quote(f"sed: can't read {file}: {error.strerror}")
        return
    for key, value in _DEFAULTS.items():
        text = re.sub(rf"^{key}=.*", f"{key}={value}", text, flags=re.MULTILINE)
    file.write_text(text)


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
    host.run(*mtools, "mmd", "-D", "s", "-i", esp, "::EFI", "::EFI/BOOT")
    host.run(*mtools, "mcopy", "-o", "-i", esp, str(loader), "::EFI/BOOT/BOOTX64.EFI")
