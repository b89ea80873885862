# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages, fetched by apt with a configuration of its own: the host's apt stays as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from . import cache
from .errors import ImageError

_SETTING = re.compile(r'^(Acquire::(?:https?::(?:Proxy|CAInfo|Verify)[^ ]*|Check-Valid-Until|Retries)) "(.*)";\Z')


_ROLLING = ("sid",)  # suites without -updates and -security
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_FOLDERS = (
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg",
    "var/cache/apt/archives/partial",
)


def apt_options() -> list[str]:
    """Settings of the host's apt by which it reaches its mirror, and takes an old copy of it; a build does the same."""
    if not shutil.which("apt-config"):
        return []
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    found = [_SETTING.match(line) for line in dump.splitlines()]
    return [f'{match[1]} "{match[2]}"' for match in found if match and match[2]]


def sources(suite: str, apt: Path = Path("/etc/apt"), release: Path = Path("/etc/os-release")) -> list[str]:
    """The host's lines for this suite (main only), else those for its own suite with this one's name in them.

    Empty means: let mmdebstrap take its default mirror.
    """
    lines = _lines(suite, apt)
    if lines:
        return lines
    system = dict(re.findall(r'^(ID|VERSION_CODENAME)="?([^"\n]+)', release.read_text(), re.M))
    if system.get("ID") != "debian" or "VERSION_CODENAME" not in system:
        return []
    own = [line.split() for line in _lines(system["VERSION_CODENAME"], apt)]
    renamed = [(kind, uri, name.replace(system["VERSION_CODENAME"], suite), *rest) for kind, uri, name, *rest in own]
    return [" ".join(words) for words in renamed if suite not in _ROLLING or words[2] == suite]


def _lines(suite: str, apt: Path) -> list[str]:
    """The host's own lines for this suite; none when the suite itself is not among them."""
    if not shutil.which("apt-get"):
        return []
    form = ("--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    command = ["apt-get", "indextargets", "--no-release-info", "-o", f"Dir::Etc={apt}", *form]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    suites = (suite, f"{suite}-updates", f"{suite}-security")
    wanted = [words for words in map(str.split, listed.splitlines()) if words[1] in suites and words[2:] == ["main"]]
    lines = dict.fromkeys(f"deb {uri.rstrip('/')} {name} main" for uri, name, _main in wanted)
    return list(lines) if any(f" {suite} " in line for line in lines) else []


class Archive:
    """One suite of Debian, read by an apt whose state is in a folder of its own; needs no root."""

    def __init__(self, suite: str, folder: Path | None = None) -> None:
        """Fetch the index of the suite.

        Without ``folder`` the state is in the mirror's, which all processes share: hold the lock ``mirror`` meanwhile.
        """
        self.suite = suite
        self._root = folder or cache.root() / "mirror" / f"apt-{suite}"
        for name in _FOLDERS:
            (self._root / name).mkdir(parents=True, exist_ok=True)
        found = [line.removeprefix("deb ") for line in sources(suite)]
        lines = [f"deb [signed-by={_KEYRING}] {line}" for line in found]
        if not lines:
            raise ImageError(f"the apt sources of this host tell no Debian mirror that has {suite}; the lab's mirror "
                             "is filled from the mirror that they name")  # fmt: skip
        (self._root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
        settings = "".join(f"{setting};\n" for setting in apt_options())
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


def package_field(package: Path, name: str) -> str:
    """A field of a package's control file; empty when it has none."""
    command = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def upstream_version(version: str) -> str:
    """A package's version as its makers call it: 1.7.24 of 1.7.24~ds1-6+deb13u1."""
    plain = version.rpartition(":")[2]
    for mark in ("~", "+", "-"):
        plain = plain.partition(mark)[0]
    return plain
