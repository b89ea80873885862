# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's packages of container programs, repacked under the names and shapes in which their makers publish them."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.apt import Archive, package_field, upstream_version

ARCH = "amd64"
#: the archive of all programs of a node that Kubernetes publishes, with a SHA-512
NODE_ARCHIVE = "kubernetes-node"
#: What each suite gives; a version that two suites have comes from the first, so that it runs on both.
_WANTED = {
    "bookworm": ("containerd", "runc", "containernetworking-plugins"),
    "trixie": ("containerd", "runc", "containernetworking-plugins"),
    "sid": ("containerd", "runc", "containernetworking-plugins"),
}
_MTIME = 1_577_836_800  # of everything in a tarball, so that its bytes depend on the package alone


@dataclass(frozen=True)
class Part:
    """One published file: what it is of, and where it is found below the mirror's root."""

    name: str  # as in the checksums: containerd, containerd-static, runc, cni-plugins, crictl, kubelet …
    version: str
    path: str
    file: Path


def build(folder: Path) -> list[Part]:
    """Fetch and repack everything into ``folder``."""
    parts: dict[str, Part] = {}
    for suite, names in _WANTED.items():
        with tempfile.TemporaryDirectory() as temporary:
            for package in Archive(suite).download(names, Path(temporary)):
                _add(package, folder, parts)
    return list(parts.values())


def _add(package: Path, folder: Path, parts: dict[str, Part]) -> None:
    name = package.name.partition("_")[0]
    first: Path | None = None
    for part in _parts(name, upstream_version(package_field(package, "Version")), folder):
        if part.path in parts:
            continue
        part.file.parent.mkdir(parents=True, exist_ok=True)
        if first is None:
            _repack(name, package, part.file)
        else:
            part.file.hardlink_to(first)  # Debian's needs no static twin; it runs everywhere already
        first = part.file
        parts[part.path] = part


def _parts(package: str, version: str, folder: Path) -> list[Part]:
    github = "github.com"
    paths = {
        "containerd": {kind: containerd_path(version, kind) for kind in ("containerd", "containerd-static")},
        "runc": {"runc": f"{github}/opencontainers/runc/releases/download/v{version}/runc.{ARCH}"},
        "containernetworking-plugins": {
            "cni-plugins": f"{github}/containernetworking/plugins/releases/download/v{version}/"
            f"cni-plugins-linux-{ARCH}-v{version}.tgz"
        },
    }[package]
    return [Part(name, version, path, folder / path) for name, path in paths.items()]


def containerd_path(version: str, kind: str = "containerd") -> str:
    """Where containerd's project publishes a tarball."""
    return f"github.com/containerd/containerd/releases/download/v{version}/{kind}-{version}-linux-{ARCH}.tar.gz"


def _repack(package: str, deb: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        tree = Path(temporary)
        subprocess.run(["dpkg-deb", "--extract", str(deb), str(tree)], check=True)
        if package == "runc":
            shutil.copy(tree / "usr/sbin/runc", target)
        elif package == "containerd":
            found = [tree / "usr/bin" / name for name in ("containerd", "containerd-shim-runc-v2", "ctr")]
            target.write_bytes(tarball({f"bin/{file.name}": file.read_bytes() for file in found}))
        else:
            found = sorted(path for path in (tree / "usr/lib/cni").iterdir() if not path.name.endswith("-fp"))
            target.write_bytes(tarball({f"./{file.name}": file.read_bytes() for file in found}))


def tarball(members: dict[str, bytes]) -> bytes:
    """A compressed tarball of programs whose bytes depend on theirs alone."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o755, _MTIME
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
