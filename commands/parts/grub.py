# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts GRUB onto the disk with the new system's own programs."""

from __future__ import annotations

import os
from pathlib import Path

from commands.parts.errors import Refused


def grub_program(top: Path, name: str) -> str:
    """Return the new system's grub-NAME, under the name its distribution gives it."""
    for prefix in ("grub", "grub2"):
        for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
            if os.access(str(top) + "%s/%s-%s" % (folder, prefix, name), os.X_OK):
                return "%s-%s" % (prefix, name)
    raise Refused("image: it has no grub-%s; install GRUB in it" % name)


def write_menu(top: Path, call) -> None:
    """Write grub.cfg."""
    program = grub_program(top, "mkconfig")
    folder = "/boot/%s" % program.partition("-")[0]
    call("mkdir", "-p", folder)
    call(program, "-o", folder + "/grub.cfg")
    menu = Path(str(top) + folder + "/grub.cfg")
    if not menu.is_file() or b"linux" not in menu.read_bytes():
        raise Refused("image: %s found no kernel to start" % program)


def install_efi(top: Path, call, half: str) -> None:
    """Install GRUB into the ESP, which is mounted, under the name that needs no boot entry in the firmware."""
    call(
        grub_program(top, "install"), "--target=" + half, "--efi-directory=/boot/efi", "--no-nvram", "--removable",
        "--recheck", "--no-floppy",
    )  # fmt: skip


def install_bios(top: Path, call, half: str, disk: str) -> None:
    """Install GRUB for a BIOS; from its last write on the disk boots there, so all else is written before."""
    os.sync()
    call(grub_program(top, "install"), "--target=" + half, "--recheck", "--no-floppy", disk)
