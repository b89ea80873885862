# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host has: its programs, its apt settings and its Debian sources."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

from .errors import ImageError

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
_ROLLING = ("sid",)  # suites without -updates and -security
_SETTING = re.compile(r'^(Acquire::(?:https?::(?:Proxy|CAInfo|Verify)[^ ]*|Retries)) "(.*)";\Z')


def required_packages() -> list[str]:
    """The Debian packages that building images needs on the host."""
    return sorted({*_PROGRAMS.values(), *_DATA.values()})


def require_programs() -> None:
    """Raise one clear error naming everything that is missing."""
    if platform.machine() != "x86_64":
        raise ImageError(f"lab images are built for x86_64 only, this host is {platform.machine()}")
    missing = {package for program, package in _PROGRAMS.items() if not _which(program)}
    missing |= {package for path, package in _DATA.items() if not Path(path).exists()}
    if missing:
        raise ImageError(f"building lab images needs Debian packages; run: apt-get install {' '.join(sorted(missing))}")


def _which(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def apt_options() -> list[str]:
    """Proxy, certificate and retry settings of the host's apt, so that the build reaches what the host reaches."""
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
    lines: list[str] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix == ".sources":
            lines += _stanzas(path.read_text(), suite)
        elif path.suffix == ".list" and path.exists():
            lines += _one_liners(path.read_text(), suite)
    return list(dict.fromkeys(lines)) if any(f" {suite} " in line for line in lines) else []


def _stanzas(text: str, suite: str) -> list[str]:
    lines = []
    for stanza in re.split(r"\n\s*\n", text):
        plain = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        fields = {
            key.lower(): value.split() for key, value in re.findall(r"^([\w-]+):((?:.*)(?:\n[ \t].*)*)", plain, re.M)
        }
        if "deb" not in fields.get("types", []) or fields.get("enabled") == ["no"]:
            continue
        for uri in fields.get("uris", []):
            lines += [
                _line(uri, name) for name in fields.get("suites", []) if _wanted(name, suite, fields["components"])
            ]
    return lines


def _one_liners(text: str, suite: str) -> list[str]:
    lines = []
    for words in (re.sub(r"\[.*?\]", "", line).split() for line in text.splitlines()):
        if len(words) >= 4 and words[0] == "deb" and _wanted(words[2], suite, words[3:]):
            lines.append(_line(words[1], words[2]))
    return lines


def _wanted(name: str, suite: str, components: list[str]) -> bool:
    return name in (suite, f"{suite}-updates", f"{suite}-security") and "main" in components


def _line(uri: str, name: str) -> str:
    return f"deb {uri} {name} main"
