# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue of the lab: one tree, booted as it is (containers) or as kernel and initramfs (virtual machines)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .bootstrap import bootstrap
from .recipe import Recipe

# Kernel modules a rescue of a virtual machine can need; all others would only be carried into RAM at every boot.
_MODULES_KEPT = (
    "arch/x86/crypto", "crypto", "lib", "fs/ext4", "fs/jbd2", "fs/mbcache.ko", "fs/xfs", "fs/btrfs", "fs/fat", "fs/nls",
    "fs/isofs", "fs/overlayfs", "fs/squashfs", "block", "drivers/block", "drivers/scsi", "drivers/virtio", "drivers/md",
    "drivers/nvme", "drivers/cdrom", "drivers/net/virtio_net.ko", "drivers/net/net_failover.ko", "net/core",
    "drivers/char/hw_random", "drivers/firmware", "drivers/ata",
)  # fmt: skip
# Large, and used by nothing in a rescue: full Perl (perl-base stays), hardware names, Unicode data of xfs_scrub.
_BALLAST = (
    "usr/share/perl", "usr/lib/x86_64-linux-gnu/perl", "usr/lib/x86_64-linux-gnu/libperl.so*", "usr/lib/udev/hwdb.*",
    "usr/lib/x86_64-linux-gnu/libicu*", "usr/sbin/xfs_scrub*", "usr/lib/x86_64-linux-gnu/gconv",
)  # fmt: skip


def build(recipe: Recipe, folder: Path, packages: Path, progress: Callable[[str], None]) -> dict[str, str]:
    """Build ``tree``, ``kernel`` and ``initrd`` in ``folder``; returns the names of the files by their key."""
    tree = folder / "tree"
    bootstrap(recipe, tree, packages, progress)
    for cache in ("var/cache/apt", "var/lib/apt/lists", "var/cache/debconf", "tmp"):
        subprocess.run(["find", str(tree / cache), "-mindepth", "1", "-delete"], check=True)
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    shutil.copy(kernel, folder / "kernel")
    shutil.rmtree(tree / "boot")
    for link in ("vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old"):
        (tree / link).unlink(missing_ok=True)
    (tree / "boot").mkdir()
    _thin_modules(tree, kernel.name.removeprefix("vmlinuz-"))
    for ballast in _BALLAST:
        for path in tree.glob(ballast):
            subprocess.run(["rm", "-rf", str(path)], check=True)
    wanted = tree / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.symlink_to("/lib/systemd/system/systemd-networkd.service")
    (tree / "init").symlink_to("/lib/systemd/systemd")  # where the kernel looks in an initramfs
    progress(f"{recipe.name}: packing the initramfs")
    with (folder / "initrd").open("wb") as sink:
        names = subprocess.run(["find", ".", "-xdev", "-print0"], cwd=tree, capture_output=True, check=True).stdout
        pack = ["cpio", "--null", "--create", "--format=newc", "--quiet", "--owner=+0:+0"]
        subprocess.run(pack, input=names, cwd=tree, stdout=sink, check=True)
    return {"kernel": "kernel", "initrd": "initrd"}


def _thin_modules(tree: Path, version: str) -> None:
    root = tree / "lib/modules" / version / "kernel"
    kept = [root / name for name in _MODULES_KEPT]
    for module in root.rglob("*.ko*"):
        if not any(module == keep or keep in module.parents for keep in kept):
            module.unlink()
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    subprocess.run(["chroot", str(tree), "depmod", version], check=True)
