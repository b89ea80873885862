# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image for installimage: a root file system as a tarball, under a name that installimage can read."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from .bootstrap import bootstrap
from .debian import read_firmware_in_containers, tidy
from .recipe import Recipe

FILE = "Debian-1200-bookworm-amd64-base.tar.zst"


def build(recipe: Recipe, folder: Path, packages: Path, progress: Callable[[str], None]) -> dict[str, str]:
    """Build the tarball in ``folder``; returns the names of the files by their key."""
    tree = folder / "tree"
    bootstrap(recipe, tree, packages, progress)
    _make_initramfs(tree)
    (tree / "boot/grub").mkdir()  # as the packages do that write to a disk, too; grub-mkconfig does not
    read_firmware_in_containers(tree)
    tidy(tree)
    progress(f"{recipe.name}: packing the tarball")
    pack = [
        "tar", "--create", "--numeric-owner", "--xattrs", "--one-file-system", "--sort=name",
        "--use-compress-program=zstd -T0 -9", "--file", str(folder / FILE), "--directory", str(tree), ".",
    ]  # fmt: skip
    subprocess.run(pack, check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(tree)], check=True)
    return {"tarball": FILE}


def _make_initramfs(tree: Path) -> None:
    """Make the initramfs once, when all packages with a part in it are there (see the image's own update-initramfs)."""
    settings = tree / "etc/initramfs-tools/update-initramfs.conf"
    settings.write_text(settings.read_text().replace("update_initramfs=no", "update_initramfs=yes"))
    subprocess.run(["chroot", tree, "/usr/sbin/update-initramfs", "-u", "-k", "all"], capture_output=True, check=True)
    for initramfs in (tree / "boot").glob("initrd.img-*"):
        # installimage takes whatever is called like an initramfs for one
        initramfs.with_name(initramfs.name.replace("initrd.img-", "lab-initrd-")).hardlink_to(initramfs)
