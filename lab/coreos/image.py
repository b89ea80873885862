# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The live image put together: the layout that coreos-installer expects, full and minimal, as reproducible bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from lab.images import ImageError

from . import bootloader, initramfs, miniso, packages

SOURCES = Path(__file__).parent / "files"
BUILDERS = ("bootloader", "image", "initramfs", "miniso", "newc", "packages")
LABEL = "lab-coreos-1"
ARGUMENTS = f"coreos.liveiso={LABEL} ignition.firstboot ignition.platform.id=metal mitigations=off"
EMBED_AREA = 256 * 1024
FILES = {
    "iso": "coreos.iso",
    "kernel": "vmlinuz",
    "initramfs": "initrd.img",
    "rootfs": "rootfs.img",
    "busybox": "busybox",
}
_EPOCH = 1_700_000_000  # the one time in the image
_PROGRAMS = {"xorriso": "xorriso", "grub-mkimage": "grub-common", "mformat": "mtools", "dpkg-deb": "dpkg"}
_KARGS = {"isolinux/isolinux.cfg": "isolinux.cfg", "EFI/fedora/grub.cfg": "grub.cfg"}
_ROOTFS, _MINISO = "images/pxeboot/rootfs.img", "coreos/miniso.dat"  # what a minimal image lacks


def build(folder: Path, progress: Callable[[str], None]) -> dict[str, str]:
    """Build all of FILES in ``folder``; returns what else is to be known of them."""
    _require_programs()
    progress("coreos: unpacking kernel, busybox and boot loader of Debian packages")
    scratch = folder / "scratch"
    tree = packages.unpack(scratch)
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    version = kernel.name.removeprefix("vmlinuz-")
    shutil.copyfile(kernel, folder / FILES["kernel"])
    shutil.copy(tree / initramfs.BUSYBOX, folder / FILES["busybox"])
    (folder / FILES["initramfs"]).write_bytes(initramfs.initramfs(tree, SOURCES / "initramfs", version))
    (folder / FILES["rootfs"]).write_bytes(initramfs.rootfs(tree, SOURCES / "root"))
    progress("coreos: writing the ISO")
    small = _write_iso(folder, tree, scratch)
    shutil.rmtree(scratch)
    return {"kernel_version": version, "minimal_sha256": small}


def _write_iso(folder: Path, tree: Path, scratch: Path) -> str:
    """Both images; the full one gets the recipe of the other, whose digest is returned."""
    contents = _contents(folder, tree, scratch)
    mbr = tree / "usr/lib/ISOLINUX/isohdpfx.bin"
    full, small = folder / FILES["iso"], scratch / "minimal.iso"
    _xorriso(contents, full, mbr, scratch / "full")
    _xorriso({name: data for name, data in contents.items() if name not in (_ROOTFS, _MINISO)}, small, mbr,
             scratch / "minimal")  # fmt: skip
    sector, _length = miniso.extents(full)[f"/{_MINISO}"]
    with full.open("r+b") as file:
        file.seek(sector * miniso.SECTOR)
        file.write(miniso.recipe(full, small))
    os.utime(full, (_EPOCH, _EPOCH))
    return hashlib.sha256(small.read_bytes()).hexdigest()


def _contents(folder: Path, tree: Path, scratch: Path) -> dict[str, bytes]:
    """Every file of the full image."""
    syslinux = tree / "usr/lib/syslinux/modules/bios"
    settings = {path: bootloader.settings(SOURCES / "boot" / name, ARGUMENTS) for path, name in _KARGS.items()}
    arguments = {
        "default": ARGUMENTS,
        "files": [{"path": path, "offset": found.offset} for path, found in settings.items()],
        "size": bootloader.AREA,
    }
    return {
        "coreos/features.json": _json({"installer-config": False, "live-initrd-network": True}),
        "coreos/igninfo.json": _json({"file": "images/ignition.img"}),
        "coreos/kargs.json": _json(arguments),
        _MINISO: bytes(miniso.RESERVED),
        "images/efiboot.img": bootloader.efi_image(SOURCES / "boot/early.cfg", scratch, _EPOCH),
        "images/ignition.img": bytes(EMBED_AREA),
        "images/pxeboot/initrd.img": (folder / FILES["initramfs"]).read_bytes(),
        "images/pxeboot/vmlinuz": (folder / FILES["kernel"]).read_bytes(),
        _ROOTFS: (folder / FILES["rootfs"]).read_bytes(),
        "isolinux/isolinux.bin": (tree / "usr/lib/ISOLINUX/isolinux.bin").read_bytes(),
        "isolinux/ldlinux.c32": (syslinux / "ldlinux.c32").read_bytes(),
        **{path: found.text for path, found in settings.items()},
    }


def _xorriso(contents: dict[str, bytes], target: Path, mbr: Path, tree: Path) -> None:
    """An ISO that boots from CD and disk, with BIOS and UEFI; what a minimal image lacks lies behind all else."""
    for name, data in contents.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    weights = [word for name in (_ROOTFS, _MINISO) if name in contents
               for word in ("--sort-weight", "-1", f"/{name}")]  # fmt: skip
    command = [
        "xorriso", "-as", "mkisofs", "-quiet", "-o", str(target), "-V", LABEL, "-R", "-J",
        "-uid", "0", "-gid", "0", "-dir-mode", "0555", "-file-mode", "0444", "--set_all_file_dates", f"={_EPOCH}",
        *weights,
        "-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4",
        "-boot-info-table", "-isohybrid-mbr", str(mbr),
        "-eltorito-alt-boot", "-e", "images/efiboot.img", "-no-emul-boot", "-isohybrid-gpt-basdat",
        str(tree),
    ]  # fmt: skip
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(_EPOCH), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"xorriso failed (status {done.returncode}):\n{done.stderr.strip()[-1000:]}")


def _json(data: object) -> bytes:
    return json.dumps(data, indent=2).encode() + b"\n"


def _require_programs() -> None:
    missing = sorted({package for program, package in _PROGRAMS.items() if not shutil.which(program)})
    if not Path("/usr/lib/grub/x86_64-efi/fat.mod").exists():
        missing.append("grub-efi-amd64-bin")
    if missing:
        raise ImageError(f"building the live image needs Debian packages; run: apt-get install {' '.join(missing)}")
