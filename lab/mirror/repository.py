# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed flat apt repositories, and the bootstrap data that aims a machine's apt at them."""

from __future__ import annotations

import contextlib
import email.utils
import gzip
import hashlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import cache, images
from lab.apt import Archive
from lab.errors import ImageError
from lab.images.recipe import RECIPES
from lab.machines import partition_table

#: suite → the image of the lab that has it
IMAGES = {"bookworm": "debian", "trixie": "debian13"}
#: With everything they depend on and the images lack; each group is one transaction of apt.
_PACKAGES = (
    (
        "apparmor",
        "cifs-utils",
        "conntrack",
        "containerd",
        "containernetworking-plugins",
        "docker.io",
        "ebtables",
        "ethtool",
        "gnupg",
        "ipset",
        "iptables",
        "ipvsadm",
        "jq",
        "nfs-common",
        "nftables",
        "open-iscsi",
        "python3-httptools",
        "python3-yaml",
        "runc",
        "socat",
        "systemd-zram-generator",
        "unattended-upgrades",
        "xfsprogs",
        "zram-tools",
    ),
    ("chrony",),
    ("systemd-timesyncd",),
)
#: Debian 13 took the command line out of docker.io.
_OF_SUITE = {"trixie": (("docker-cli",),)}
_OWNER = "kubenode lab <lab@kubenode.invalid>"
_FIELDS = ("Filename", "Size", "SHA256")
_KEY_FILE = "/etc/apt/keyrings/kubenode-lab.asc"


def digest(suite: str) -> str:
    """Changes with the image, the packages and what builds the repository."""
    total = hashlib.sha256(f"{suite} {RECIPES[IMAGES[suite]].digest}".encode())
    for module in ("../apt.py", "repository.py"):
        total.update((Path(__file__).parent / module).read_bytes())
    return total.hexdigest()[:16]


def packages(suite: str) -> tuple[tuple[str, ...], ...]:
    """What the repository has, by transactions."""
    return (*_PACKAGES, *_OF_SUITE.get(suite, ()))


def build(suite: str, folder: Path) -> None:
    """Fill ``folder`` with a flat repository for this suite."""
    status = _dpkg_status(IMAGES[suite])
    archive = Archive(suite)
    for group in packages(suite):
        archive.install(group, status, folder)
    stanzas = []
    for file in sorted(folder.glob("*.deb")):
        target = file.rename(file.with_name(file.name.replace("%3a", "_")))  # the colon of an epoch
        control = subprocess.run(["dpkg-deb", "--field", str(target)], capture_output=True, text=True, check=True)
        values = (f"./{target.name}", target.stat().st_size, cache.sha256(target))
        lines = [f"{field}: {value}" for field, value in zip(_FIELDS, values, strict=True)]
        stanzas.append("\n".join([control.stdout.rstrip(), *lines]) + "\n")
    index = "\n".join(stanzas).encode()
    packed = gzip.compress(index, mtime=0)
    (folder / "Packages.gz").write_bytes(packed)
    _sign(folder, suite, {"Packages": index, "Packages.gz": packed})


def _sign(folder: Path, suite: str, indexes: dict[str, bytes]) -> None:
    lines = [
        "Origin: kubenode lab",
        "Label: kubenode lab",
        f"Suite: {suite}",
        f"Codename: {suite}",
        "Architectures: amd64",
        f"Date: {email.utils.formatdate(usegmt=True)}",
        "SHA256:",
    ]
    for name, content in indexes.items():
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
    release = folder / "Release"
    release.write_text("\n".join(lines) + "\n")
    with _keyring() as home:
        _gpg(home, "--output", str(folder / "InRelease"), "--clear-sign", str(release))


def public_key() -> Path:
    """The armored public key of the repositories; made once for this cache."""
    folder = cache.root() / "mirror" / "key"
    if not folder.exists():
        with cache.new_folder(folder) as partial, _home() as home:
            secret = partial / "secret.asc"
            secret.touch(mode=0o600)
            _gpg(home, "--passphrase", "", "--quick-generate-key", _OWNER, "ed25519", "sign", "never")
            secret.write_bytes(_gpg(home, "--armor", "--export-secret-keys"))
            (partial / "key.asc").write_bytes(_gpg(home, "--armor", "--export"))
    return folder / "key.asc"


@contextlib.contextmanager
def _keyring() -> Iterator[str]:
    """A GnuPG home that holds the secret key."""
    secret = public_key().with_name("secret.asc")
    with _home() as home:
        _gpg(home, "--import", str(secret))
        yield home


@contextlib.contextmanager
def _home() -> Iterator[str]:
    """An empty GnuPG home with a short path (its sockets need one), and no agent afterwards."""
    with tempfile.TemporaryDirectory(prefix="kn-gpg-") as home:
        try:
            yield home
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], capture_output=True, check=False)


def _gpg(home: str, *arguments: str) -> bytes:
    command = ["gpg", "--homedir", home, "--batch", "--quiet", "--yes", "--pinentry-mode", "loopback", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ImageError(f"gpg {arguments[-1]} failed (status {done.returncode}): {done.stderr.decode().strip()}")
    return done.stdout


def _dpkg_status(image: str) -> str:
    """What the image has installed, read out of its disk."""
    raw = images.ensure(image).files["raw"]
    with raw.open("rb") as file:
        root = max(partition_table.parse(file.read(partition_table.HEAD)), key=lambda part: part.size)
    disk = f"{raw}?offset={root.start}"
    command = ["debugfs", "-R", "cat /var/lib/dpkg/status", disk]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Package: dpkg\n" not in done.stdout:
        raise ImageError(f"debugfs finds no dpkg database in {disk}: {done.stderr.strip()}")
    return done.stdout


def cloud_config(mirror_url: str, suite: str) -> dict[str, Any]:
    """The ``#cloud-config`` (as a dictionary) after which apt knows the mirror's repository of this suite alone."""
    if suite not in IMAGES:
        raise ValueError(f"suite is '{suite}'; the mirror has {', '.join(sorted(IMAGES))}")
    with cache.locked("mirror"):
        key = public_key().read_text()
    source = f"deb [signed-by={_KEY_FILE}] {mirror_url}/apt/{suite} ./\n"
    return {
        # Or cloud-init writes a list of its own.
        "apt": {"preserve_sources_list": True},
        "write_files": [
            {"path": _KEY_FILE, "content": key, "permissions": "0644"},
            {"path": "/etc/apt/sources.list", "content": source, "permissions": "0644"},
            # Every machine of a provider has one; a kubelet makes those of its pods from it.
            {"path": "/etc/resolv.conf", "content": "# The lab has no DNS.\n", "permissions": "0644"},
        ],
    }
