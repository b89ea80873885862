# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What installimage reads from the name of an image: how to get it, how to unpack it, what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


def parse(value: str) -> ImageName:
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
