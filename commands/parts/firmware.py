# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firmware of this machine, and the boot loaders that go onto the disk."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from commands.parts.errors import Refused
from commands.parts.filesystems import WAYS, kernel_knows

#: By architecture: what GRUB calls its half for UEFI and for BIOS.
GRUB_HALVES = {"x86_64": ("x86_64-efi", "i386-pc"), "aarch64": ("arm64-efi", "")}


class Firmware:
    """How this machine boots, and what can be written for the other way, so that the disk boots anywhere."""

    def __init__(self):
        machine = platform.machine()
        if machine not in GRUB_HALVES:
            raise Refused("this machine is a %s; known are %s" % (machine, ", ".join(GRUB_HALVES)))
        self.efi_half, self.bios_half = GRUB_HALVES[machine]
        self.uefi = Path("/sys/firmware/efi").is_dir() or not self.bios_half
        self.esp = kernel_knows("vfat") and shutil.which(WAYS["vfat"][0][0]) is not None
        if self.uefi and not self.esp:
            raise Refused("this machine boots by UEFI, and this rescue has no vfat or no mkfs.vfat for its ESP")

    @property
    def needed(self) -> str:
        """The half of GRUB that this machine cannot boot without."""
        return self.efi_half if self.uefi else self.bios_half

    def halves(self, found: set) -> tuple:
        """Return which halves to install, (for UEFI, for BIOS), of those that the image has."""
        return self.esp and self.efi_half in found, bool(self.bios_half) and self.bios_half in found
