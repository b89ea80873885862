# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of a Debian suite, fetched by apt with a configuration of its own: nothing of the host's apt changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lab.images import ImageError, cache, host

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FOLDERS = (
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg",
    "var/cache/apt/archives/partial",
)


class Archive:
    """One suite; make it while holding the mirror's lock, its folder is shared by all processes."""

    def __init__(self, suite: str) -> None:
        """Read the index of the suite anew."""
        self.suite = suite
        self._root = cache.root() / "mirror" / f"apt-{suite}"
        for folder in _FOLDERS:
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        lines = [line.replace("deb ", f"deb [signed-by={_KEYRING}] ", 1) for line in host.sources(suite)]
        if not lines:
            raise ImageError(f"the apt sources of this host tell no Debian mirror that has {suite}; the lab's mirror "
                             "is filled from the mirror that they name")  # fmt: skip
        (self._root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
        settings = "".join(f"{setting};\n" for setting in host.apt_options())
        (self._root / "etc/apt/apt.conf").write_text(settings)
        self._status(None)
        self._apt("update")

    def download(self, packages: tuple[str, ...], folder: Path) -> list[Path]:
        """These packages alone, in the version that the suite offers, as files in the empty ``folder``."""
        self._apt("download", *packages, cwd=folder)
        return sorted(folder.glob("*.deb"))

    def install(self, packages: tuple[str, ...], status: str, folder: Path) -> None:
        """What installing them fetches on a machine whose dpkg database is ``status``, as files in ``folder``."""
        self._status(status)
        partial = folder / "partial"  # apt wants it, and leaves its lock beside it
        partial.mkdir()
        where = ("-o", f"Dir::Cache::archives={folder}")
        self._apt(*where, "--no-install-recommends", "--yes", "--download-only", "install", *packages)
        partial.rmdir()
        (folder / "lock").unlink()

    def _status(self, content: str | None) -> None:
        (self._root / "var/lib/dpkg/status").write_text(content or "")

    def _apt(self, *arguments: str, cwd: Path | None = None) -> str:
        command = [
            "apt-get", "--quiet", "-o", f"Dir={self._root}",
            "-o", f"Dir::State::status={self._root}/var/lib/dpkg/status",
            "-o", "APT::Sandbox::User=root", "-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64",
            *arguments,
        ]  # fmt: skip
        settings = {"APT_CONFIG": str(self._root / "etc/apt/apt.conf"), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | settings,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            tail = "\n".join((done.stderr or done.stdout).splitlines()[-10:])
            raise ImageError(
                f"apt-get {' '.join(arguments)} of {self.suite} failed (status {done.returncode}):\n{tail}"
            )
        return done.stdout


def field(package: Path, name: str) -> str:
    """A field of a package's control file; empty when it has none."""
    command = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def upstream_version(version: str) -> str:
    """A package's version as its makers call it: 1.7.24 of 1.7.24~ds1-6+deb13u1."""
    plain = version.rpartition(":")[2]
    for mark in ("~", "+", "-"):
        plain = plain.partition(mark)[0]
    return plain
