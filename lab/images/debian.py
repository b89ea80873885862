# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systems of the lab: a bootable raw disk and its compressed forms, and a tarball for installimage."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.cache import Progress
from lab.errors import ImageError

from .bootstrap import bootstrap
from .raw_image import write_disk
from .recipe import Recipe

_DMI = "/run/host/dmi"  # as in lab/machines/files/boot-container
# form → how it is made from a raw disk on standard output
PACKERS = {
    "zst": ("zstd", "-q", "-T0", "-6", "--stdout"),
    "gz": ("gzip", "-6", "--stdout"),
    "bz2": ("bzip2", "-6", "--stdout"),
    "xz": ("xz", "-T0", "-1", "--stdout"),
}
TARBALL_FILE = "Debian-1200-bookworm-amd64-base.tar.zst"


def build(recipe: Recipe, folder: Path, packages: Path, progress: Progress) -> dict[str, str]:
    """Build ``debian.raw`` and ``debian.raw.zst`` in ``folder``; returns the names of the files by their key."""
    tree = folder / "tree"
    bootstrap(recipe, tree, packages, progress)
    read_firmware_in_containers(tree)
    tidy(tree)
    progress(f"{recipe.name}: writing the disk")
    raw = folder / f"{recipe.name}.raw"
    write_disk(tree, raw, recipe.disk_mib)
    subprocess.run(["rm", "-rf", "--one-file-system", str(tree)], check=True)
    packed = pack(raw, "zst")
    return {"raw": raw.name, "zst": packed.name}


def pack(raw: Path, form: str) -> Path:
    """Compress ``raw`` into a file beside it; complete or not there at all."""
    if form not in PACKERS:
        raise ImageError(f"image form {form!r} is not one of raw, {', '.join(sorted(PACKERS))}")
    target = raw.with_name(f"{raw.name}.{form}")
    partial = target.with_name(f".{target.name}.part")
    with raw.open("rb") as source, partial.open("wb") as sink:
        subprocess.run(PACKERS[form], stdin=source, stdout=sink, check=True)
    return partial.rename(target)


def read_firmware_in_containers(tree: Path) -> None:
    """Make cloud-init use the firmware tables that the lab shows to a container.

    cloud-init ignores them in containers because they are the host's; here they are the machine's own, and the
    Hetzner datasource recognises its platform by nothing else.
    """
    module = tree / "usr/lib/python3/dist-packages/cloudinit/dmi.py"
    text = module.read_text()
    for old, new in (
        (
            'DMI_SYS_PATH = "/sys/class/dmi/id"',
            f'DMI_SYS_PATH = "{_DMI}" if os.path.isdir("{_DMI}") else "/sys/class/dmi/id"',
        ),
        ("if is_container():", f'if is_container() and not os.path.isdir("{_DMI}"):'),
    ):
        if text.count(old) != 1:
            raise ImageError(
                f"cloud-init's {module.name} does not have the one line {old!r}; adapt {__name__} to its version"
            )
        text = text.replace(old, new)
    module.write_text(text)


def tidy(tree: Path) -> None:
    """Remove what the image does not need; give it a neutral name and its network service."""
    for folder in ("var/lib/apt/lists", "var/cache/apt", "var/cache/debconf", "tmp", "var/tmp"):
        subprocess.run(["find", str(tree / folder), "-mindepth", "1", "-delete"], check=True)
    for log in (tree / "var/log").rglob("*"):
        if log.is_file():
            log.unlink()
    # As the provider's image: the name comes with the bootstrap data.
    (tree / "etc/hostname").write_text("localhost\n")
    (tree / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True, exist_ok=True)
    wanted = tree / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    wanted.unlink(missing_ok=True)
    wanted.symlink_to("/lib/systemd/system/systemd-networkd.service")


def build_tarball(recipe: Recipe, folder: Path, packages: Path, progress: Progress) -> dict[str, str]:
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
        "--use-compress-program=zstd -T0 -9", "--file", str(folder / TARBALL_FILE), "--directory", str(tree), ".",
    ]  # fmt: skip
    subprocess.run(pack, check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(tree)], check=True)
    return {"tarball": TARBALL_FILE}


def _make_initramfs(tree: Path) -> None:
    """Make the initramfs once, when all packages with a part in it are there (see the image's own update-initramfs)."""
    settings = tree / "etc/initramfs-tools/update-initramfs.conf"
    settings.write_text(settings.read_text().replace("update_initramfs=no", "update_initramfs=yes"))
    subprocess.run(["chroot", tree, "/usr/sbin/update-initramfs", "-u", "-k", "all"], capture_output=True, check=True)
    for initramfs in (tree / "boot").glob("initrd.img-*"):
        # installimage takes each file with such a name for an initramfs
        initramfs.with_name(initramfs.name.replace("initrd.img-", "lab-initrd-")).hardlink_to(initramfs)
