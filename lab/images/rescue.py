# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue of the lab (one tree, booted as it is or as kernel and initramfs), and the folder that it mounts."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from lab import cache
from lab.cache import Progress
from lab.errors import ImageError

from .bootstrap import bootstrap
from .recipe import Recipe

# Kernel modules a rescue of a virtual machine can need (their dependencies come along); all others would only be
# carried into RAM at every boot. Some are named because they are found by an alias at run time, not by a dependency.
_MODULES_KEPT = (
    "virtio_pci", "virtio_net", "virtio_scsi", "virtio_blk", "virtio_balloon", "virtio-rng", "qemu_fw_cfg", "button",
    "ahci", "ata_piix", "nvme", "sd_mod", "sr_mod", "sg", "loop", "autofs4", "efivarfs", "9p", "9pnet_virtio",
    "ext4", "xfs", "btrfs", "vfat", "isofs", "overlay", "squashfs", "nls_cp437", "nls_iso8859-1", "nls_ascii",
    "nls_utf8", "linear", "raid0", "raid1", "raid10", "raid456", "dm-mod", "dm-crypt", "dm-snapshot", "dm-thin-pool",
    "dm-mirror", "crc32c_generic", "crc32c-intel", "crct10dif-pclmul", "crc64_rocksoft_generic", "xxhash_generic",
    "blake2b_generic", "aesni-intel", "xts", "ecb", "essiv", "af_alg", "algif_skcipher", "algif_hash",
    "fuse", "evdev", "8021q", "bonding",
)  # fmt: skip
# fio, with 60 MB of storage clients that it is linked to: a virtual machine would carry them into RAM at each boot.
_TREE_ONLY = ("usr/bin/fio", *(f"usr/lib/x86_64-linux-gnu/{name}*" for name in (
    "ceph", "libglusterfs", "libicu", "librados", "librbd", "libxml2")))  # fmt: skip
# Where the real rescue mounts installimage and its images, and where the lab does (lab/images/rescue.py).
_SHARE = "root/.oldroot/nfs"
#: The folder of another installimage, such as a checkout of Hetzner's, that rescues get in place of the emulator.
OWN_INSTALLIMAGE = "KUBENODE_LAB_INSTALLIMAGE"


def build(recipe: Recipe, folder: Path, packages: Path, progress: Progress) -> dict[str, str]:
    """Build ``tree``, ``kernel`` and ``initrd`` in ``folder``; returns the names of the files by their key."""
    tree = folder / "tree"
    bootstrap(recipe, tree, packages, progress)
    for emptied in ("var/cache/apt", "var/lib/apt/lists", "var/cache/debconf", "tmp"):
        subprocess.run(["find", str(tree / emptied), "-mindepth", "1", "-delete"], check=True)
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    shutil.copy(kernel, folder / "kernel")
    shutil.rmtree(tree / "boot")
    for link in ("vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old"):
        (tree / link).unlink(missing_ok=True)
    (tree / "boot").mkdir()
    _thin_modules(tree, kernel.name.removeprefix("vmlinuz-"))
    wanted = tree / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    (wanted / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
    (wanted / "rescue-share.service").symlink_to("/etc/systemd/system/rescue-share.service")
    (tree / _SHARE).mkdir(parents=True)
    (tree / "usr/local/bin/installimage").symlink_to(f"/{_SHARE}/install/installimage")
    (tree / "init").symlink_to("/lib/systemd/systemd")  # where the kernel looks in an initramfs
    progress(f"{recipe.name}: packing the initramfs")
    with (folder / "initrd").open("wb") as sink:
        tree_only = [word for path in _TREE_ONLY for word in ("!", "-path", f"./{path}")]
        find = ["find", ".", "-xdev", *tree_only, "-print0"]
        names = subprocess.run(find, cwd=tree, capture_output=True, check=True).stdout
        pack = ["cpio", "--null", "--create", "--format=newc", "--quiet", "--owner=+0:+0"]
        subprocess.run(pack, input=names, cwd=tree, stdout=sink, check=True)
    return {"kernel": "kernel", "initrd": "initrd"}


def _thin_modules(tree: Path, version: str) -> None:
    modules = tree / "lib/modules" / version
    root = modules / "kernel"
    subprocess.run(["chroot", str(tree), "depmod", version], check=True)
    kept: set[str] = set()
    for line in (modules / "modules.dep").read_text().splitlines():  # each line has all dependencies, also indirect
        name, _colon, needed = line.partition(":")
        if _module_name(name) in map(_module_name, _MODULES_KEPT):
            kept |= {name, *needed.split()}
    absent = {_module_name(name) for name in _MODULES_KEPT} - {_module_name(name) for name in kept}
    if absent:
        raise ImageError(f"kernel {version} has no module {', '.join(sorted(absent))}; adapt _MODULES_KEPT to it")
    for module in root.rglob("*.ko*"):
        if str(module.relative_to(modules)) not in kept:
            module.unlink()
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    subprocess.run(["chroot", str(tree), "depmod", version], check=True)


def _module_name(path: str) -> str:
    """As the kernel compares names: without folder and suffix, dashes as underscores."""
    return path.rpartition("/")[2].partition(".")[0].replace("-", "_")


_PROGRAM = Path(__file__).parents[1] / "installimage"


def build_share(tarball: Path) -> Path:
    """A folder with ``install/`` and ``images/`` (``tarball``).

    ``install/`` is the lab's emulator, as it is in this checkout, or the folder that the environment names.
    """
    program = Path(os.environ.get(OWN_INSTALLIMAGE) or _PROGRAM)
    sources = _installimage_files(program)
    digest = hashlib.sha256(os.fsencode(tarball))
    for source in sources:
        digest.update(f"\0{source.relative_to(program)}\0".encode() + source.read_bytes())
    folder = cache.images() / f"share-{digest.hexdigest()[:16]}"

    def build(partial: Path) -> None:
        (partial / "images").mkdir()
        for source in sources:
            copy = partial / "install" / source.relative_to(program)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        os.link(tarball, partial / "images" / tarball.name)

    return cache.once(folder, build, "share")


def _installimage_files(program: Path) -> list[Path]:
    """What a rescue needs of an installimage, sorted."""
    if program == _PROGRAM:
        return sorted([program / "installimage", *(program / "emulator").glob("*.py")])
    if not os.access(program / "installimage", os.X_OK):
        raise ImageError(f"{OWN_INSTALLIMAGE}: there is no program {program}/installimage")
    found = (path for path in program.rglob("*") if path.is_file() and ".git" not in path.relative_to(program).parts)
    return sorted(found)
