# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of the lab: the rescue system, small cloud images and a tarball for installimage, built and cached.

``ensure("rescue")``, ``ensure("debian")`` (bookworm), ``ensure("debian13")`` (trixie) and ``ensure("tarball")`` return
the image, building it first from Debian packages when there is none for the present recipe; ``share()`` is what a
rescue mounts to install from. Building needs root and the packages of ``missing_packages()``; using a built image
does not.
"""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lab import cache
from lab.cache import Progress, quiet
from lab.errors import PROGRAM, ImageError
from lab.machines.host_commands import find

from . import debian, rescue
from .debian import TARBALL_FILE, build_tarball
from .recipe import RECIPES, SUITE
from .rescue import build_share

__all__ = ["TARBALL", "Image", "ImageError", "ensure", "is_built", "listing", "missing_packages", "share", "variant"]

# program → the Debian package that brings it
_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "cpio": "cpio",
    "sfdisk": "fdisk",
    "mke2fs": "e2fsprogs",
    "mkfs.vfat": "dosfstools",
    "mmd": "mtools",
    "mcopy": "mtools",
    "grub-mkimage": "grub-common",
    "zstd": "zstd",
    "xz": "xz-utils",
    "bzip2": "bzip2",
    "gzip": "gzip",
}
_DATA = {
    "/usr/lib/grub/i386-pc/boot.img": "grub-pc-bin",
    "/usr/lib/grub/x86_64-efi/fat.mod": "grub-efi-amd64-bin",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
TARBALL = TARBALL_FILE  # what installimage reads the distribution, version and architecture from
_BUILDERS = {"rescue": rescue.build, "debian": debian.build, "tarball": build_tarball}
_INDEX = "image.json"  # its time of change is the time of the last use


def require_programs() -> None:
    """Raise one clear error naming everything that is missing."""
    if platform.machine() != "x86_64":
        raise ImageError(f"lab images are built for x86_64 only, this host is {platform.machine()}")
    missing = missing_packages()
    if missing:
        raise ImageError(f"building lab images needs Debian packages; run: apt-get install {' '.join(sorted(missing))}")


def missing_packages() -> set[str]:
    """The Debian packages that building images needs and this host lacks."""
    missing = {package for program, package in _PROGRAMS.items() if not find(program)}
    return missing | {package for path, package in _DATA.items() if not Path(path).exists()}


@dataclass(frozen=True)
class Image:
    """A built image: its folder, its files by key and the SHA-256 of each file."""

    name: str
    dir: Path
    files: dict[str, Path]
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        """The root file system tree (rescue only)."""
        return self.dir / "tree"


def ensure(name: str, progress: Progress = quiet) -> Image:
    """The image of this name (a key of RECIPES) and the present recipe, built when it is missing."""
    if name not in RECIPES:
        raise ImageError(f"image name {name!r} is not one of {', '.join(sorted(RECIPES))}")
    recipe = RECIPES[name]
    if not is_built(name):
        if os.geteuid() != 0:
            raise ImageError(f"the {name} image is not in {cache.images()} yet and building it needs root; "
                             f"run once as root: {PROGRAM} images build")  # fmt: skip
        require_programs()
    # the recipes of one suite share a cache of packages, and those of two suites may be built side by side
    lock = f"build-{recipe.suite}"
    build, forget = partial(_build, name, progress), partial(_forget_unused, name)
    return _load(cache.once(cache.images() / recipe.digest, build, lock, _INDEX, forget, progress))


def is_built(name: str) -> bool:
    """Whether the image of this name and the present recipe is in the cache."""
    return (cache.images() / RECIPES[name].digest / _INDEX).exists()


def _build(name: str, progress: Progress, folder: Path) -> None:
    started = time.monotonic()
    recipe = RECIPES[name]
    packages = cache.root() / ("packages" if recipe.suite == SUITE else f"packages-{recipe.suite}")
    files = _BUILDERS[recipe.builder](recipe, folder, packages, progress)
    _write_index(folder, name, files)
    progress(f"{name}: built in {time.monotonic() - started:.0f} s")


def _forget_unused(name: str, keep: Path) -> None:
    """Remove images of older recipes that were not used for days."""
    for image in listing():
        unused = time.time() - (image.dir / _INDEX).stat().st_mtime
        if image.name == name and image.dir != keep and unused > cache.KEPT_SECONDS:
            cache.remove(image.dir)


def variant(image: Image, form: str) -> Path:
    """The raw image in another form (``raw``, ``zst``, ``gz``, ``bz2``, ``xz``), packed on first use."""
    if form in image.files:
        return image.files[form]
    if "raw" not in image.files:
        raise ImageError(f"image {image.name} has no disk, so there is no {form} form of it")
    with cache.locked("build"):
        present = _load(image.dir)
        if form not in present.files:
            packed = debian.pack(present.files["raw"], form)
            files = {key: path.name for key, path in present.files.items()}
            _write_index(image.dir, image.name, {**files, form: packed.name}, present.sha256)
    return _load(image.dir).files[form]


def share(progress: Progress = quiet) -> Path:
    """The folder a rescue sees at /root/.oldroot/nfs: ``install/`` (installimage) and ``images/`` (the tarball)."""
    return build_share(ensure("tarball", progress).files["tarball"])


def listing() -> list[Image]:
    """Every image in the cache, those of older recipes included, newest first."""
    indexes = sorted(cache.images().glob(f"*/{_INDEX}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [_load(path.parent) for path in indexes]


def _write_index(folder: Path, name: str, files: dict[str, str], known: dict[str, str] | None = None) -> None:
    digests = {key: (known or {}).get(key) or cache.sha256(folder / file) for key, file in files.items()}
    for key, file in files.items():
        (folder / f"{file}.sha256").write_text(f"{digests[key]}  {file}\n")
    unfinished = folder / f".{_INDEX}.part"
    unfinished.write_text(json.dumps({"name": name, "files": files, "sha256": digests}, indent=1))
    unfinished.rename(folder / _INDEX)


def _load(folder: Path) -> Image:
    index = json.loads((folder / _INDEX).read_text())
    return Image(index["name"], folder, {key: folder / file for key, file in index["files"].items()}, index["sha256"])
