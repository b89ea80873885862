# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image: what its name says, fetched, held against its signature if it has one, unpacked."""

from __future__ import annotations

import base64
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import rescue_host
from .rescue_host import Failed, Step, debug

_DISTRIBUTIONS = {
    "suse": "suse",
    "centos": "centos",
    "ubuntu": "ubuntu",
    "arch": "archlinux",
    "rocky": "rockylinux",
    "alma": "almalinux",
    "rhel": "rhel",
}
_ARCHITECTURE = re.compile(r".*-(32|64|i386|amd64|arm64)-.*")
_FIT = {"x86_64": ("32", "64", "i386", "amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}
# endings → option of tar
_PACKED = (
    ((".tar",), "tar", ()),
    ((".tar.gz", ".tgz"), "tgz", ("--gzip",)),
    ((".tar.bz", ".tbz", ".tbz2", ".tar.bz2"), "tbz", ("--bzip2",)),
    ((".tar.xz", ".txz"), "txz", ("--xz",)),
    ((".tar.zst",), "zst", ("--zstd",)),
)
_KEY = "public-key.asc"


@dataclass(frozen=True)
class ImageName:
    """An IMAGE value taken apart."""

    value: str
    folder: str  # with a slash at its end
    file: str
    way: str  # http, local or nfs
    packing: str  # tar, tgz, tbz, txz, zst; empty when the ending is none of these
    tar_options: tuple[str, ...]
    distribution: str
    version: str
    architecture: str  # empty when the name does not say

    @property
    def url(self) -> str:
        """Where it lies: a URL, a path, or host:path."""
        return self.folder + self.file

    @property
    def number(self) -> int | None:
        """The version as a shell counts with it: a word is an unset variable, anything else an error."""
        if re.fullmatch(r"0|[1-9][0-9]{0,8}", self.version):
            return int(self.version)
        return 0 if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.version) else None

    def among(self, *ranges: tuple[int, int]) -> bool:
        """Whether the version lies in one of these ranges (first, one after the last)."""
        return self.number is not None and any(low <= self.number < high for low, high in ranges)

    def is_before(self, version: int) -> bool:
        """Whether the version is a number, and smaller than this one."""
        return self.version == str(self.number) and self.among((0, version))

    def fits(self, machine: str) -> bool:
        """Whether it can be installed on a machine of this `uname -m`."""
        return self.architecture in _FIT.get(machine, (machine,))


def parse_image_name(value: str) -> ImageName:
    """Take an IMAGE value apart; the file is what follows the last slash, query strings included."""
    folder, _slash, file = value.rpartition("/")
    folder = f"{folder}/" if folder or value.startswith("/") else "./"
    way = "http" if re.match(r"(https?|ftp):", folder) else "local" if folder.startswith("/") else "nfs"
    packing, options = next(((name, options) for endings, name, options in _PACKED if file.endswith(endings)), ("", ()))
    distribution = next((name for part, name in _DISTRIBUTIONS.items() if part in file.lower()), "debian")
    fields = file.split("-")
    version = fields[1] if len(fields) > 1 and fields[1] not in ("latest", "") else "0"
    match = _ARCHITECTURE.fullmatch(file)
    return ImageName(
        value, folder, file, way, packing, options, distribution, version, match[1] if match else ""
    )  # fmt: skip


class ImageFile:
    """The image of one installation and where it is at present."""

    def __init__(self, name: ImageName, folder: Path, target: Path) -> None:
        """``folder`` is the work directory, ``target`` where the new root file system is mounted."""
        self.name = name
        self._folder = folder
        self._target = target
        self._share = folder / "nfs"
        self.path = Path(os.path.realpath(name.url)) if name.way == "local" else Path()

    def fetch(self) -> None:
        """Download it to the new system's own disk: certificates are not checked, as by the real one."""
        self.path = self._target / self.name.file
        self._download(self.name.url, self.path)

    def mount_share(self) -> None:
        """Mount the NFS folder the image lies in."""
        self._share.mkdir()
        rescue_host.run("mount", "-t", "nfs", "-o", "ro,nolock", self.name.folder.rstrip("/"), str(self._share))
        self.path = self._share / self.name.file

    def _download(self, url: str, path: Path) -> None:
        command = ["wget", "--quiet", "--no-check-certificate", "--tries=3", "--timeout=60"]
        debug(f"# downloading {self.name.file}")  # a URL may have a password in it
        rescue_host.run(*command, "--output-document", str(path), url, secret=True)

    def validate(self, step: Step, force: bool) -> None:
        """Hold it against its detached signature; without one there is only a warning, unless ``force``."""
        if not self.path.is_file():
            debug(f"there is no image file {self.path}")
            raise Failed("image")
        problem = self._signature_problem()
        if problem and force:
            debug(f"FORCE_SIGN set, but validation failed: {problem}")
            raise Failed("signature")
        if problem:
            step.warn(problem)

    def _signature_problem(self) -> str:
        signature = self._beside(f"{self.name.file}.sig")
        if signature is None:
            return "No detached signature file found!"
        key = self._beside(_KEY)
        if key is None:
            return "No imported public key found!"
        ring = self._folder / "public-key.gpg"
        try:
            ring.write_bytes(dearmored(key.read_text()))
        except ValueError as error:
            raise Failed("key") from error
        rescue_host.run("gpgv", "--keyring", str(ring), str(signature), str(self.path))
        return ""

    def _beside(self, file: str) -> Path | None:
        """A file from the folder of the image, if there is one."""
        if self.name.way != "http":
            path = self.path.with_name(file)
            return path if path.is_file() else None
        path = self._folder / file
        try:
            self._download(self.name.folder + file, path)
        except Failed:
            return None
        return path

    def extract(self) -> None:
        """Unpack it into the new root file system."""
        rescue_host.run(
            "tar", "--extract", *self.name.tar_options, "--preserve-permissions", "--numeric-owner",
            "--xattrs", "--xattrs-include=*", "--file", str(self.path), "--directory", str(self._target),
        )  # fmt: skip

    def forget(self) -> None:
        """Leave nothing of a downloaded image or a mounted share."""
        if self.name.way == "http":
            self.path.unlink(missing_ok=True)
        elif self.name.way == "nfs" and self._share.is_mount():
            rescue_host.run("umount", str(self._share), check=False)
        shutil.rmtree(self._folder / _KEY, ignore_errors=True)


def dearmored(text: str) -> bytes:
    """The bytes of an ASCII-armored key."""
    body = text.partition("-----BEGIN PGP PUBLIC KEY BLOCK-----")[2].partition("-----END")[0]
    lines = body.partition("\n\n")[2].split()
    return base64.b64decode("".join(line for line in lines if not line.startswith("=")), validate=True)
