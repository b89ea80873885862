# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages and sources of one suite, fetched through a private apt state with the host's own settings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.images import host

from .errors import ClusterError

SUITE = "bookworm"  # the last one that has the source package kubernetes
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Apt:
    """apt with lists of its own: the host's may lack the sources, and must not be changed."""

    def __init__(self, folder: Path) -> None:
        """``folder`` holds its state; it needs neither root nor the host's lists."""
        self._folder = folder
        lines = host.sources(SUITE)
        if not lines:
            raise ClusterError(
                f"this host's apt has no sources of {SUITE} (main), of which Kubernetes is built; add them to /etc/apt"
            )
        for name in ("lists/partial", "cache/archives/partial", "downloads"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        signed = [line.removeprefix("deb ") for line in lines]
        (folder / "sources.list").write_text(
            "".join(f"{kind} [signed-by={_KEYS}] {line}\n" for line in signed for kind in ("deb", "deb-src"))
        )
        self._run("update")

    def source(self, name: str, target: Path) -> str:
        """Unpack a source package into the new folder ``target``; returns its version."""
        self._run("source", "--only-source", "--download-only", name)
        found = sorted(self._downloads.glob(f"{name}_*.dsc"))
        if not found:
            raise ClusterError(f"apt downloaded no source package {name} of {SUITE}")
        # apt has verified the files against the signed index already.
        _checked("dpkg-source", "--no-check", "-x", str(found[-1]), str(target))
        return found[-1].stem.partition("_")[2]

    def package(self, name: str, target: Path) -> None:
        """Unpack a binary package into ``target``, without installing it (so that no service of it starts)."""
        self._run("download", name)
        found = sorted(self._downloads.glob(f"{name}_*.deb"))
        if not found:
            raise ClusterError(f"apt downloaded no package {name} of {SUITE}")
        _checked("dpkg-deb", "-x", str(found[-1]), str(target))

    @property
    def _downloads(self) -> Path:
        return self._folder / "downloads"

    def _run(self, *arguments: str) -> None:
        options = {
            "Dir::Etc::SourceList": self._folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": self._folder / "lists",
            "Dir::Cache": self._folder / "cache",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",  # the folder is not open to apt's own user
        }
        settings = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        _checked("apt-get", "-q", *settings, *arguments, folder=self._downloads)


def _checked(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
        raise ClusterError(f"{command[0]} failed (status {done.returncode}) for the lab's Kubernetes:\n{tail}")
