# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a word of an installimage configuration may be, and what the file name of an image says (pure)."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

#: installimage splits its configuration at white space and hands words to shells: nothing that either would notice.
_WORD = re.compile(r"[A-Za-z0-9@%+=:,./_~-]+\Z")
#: A passphrase may hold more, as it is read as one word and never evaluated; quotes and backslashes are not worth it.
_PASSPHRASE = re.compile(r"[A-Za-z0-9!#$%&()*+,./:;<=>?@^_{|}~\[\]-]+\Z")
#: installimage asks at the terminal when its configuration holds this, and no person is there to answer.
PROMPT = "PASSWD"

#: The units are installimage's, in its case of letters. It takes a bare number for MiB, which few who write 40 mean.
_SIZE = re.compile(r"(0|[1-9][0-9]{0,11})([MGT])(?:iB)?\Z")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}
ALL = "all"


def shown(value: object) -> str:
    """A value in a message: short, on one line, harmless, in the letters in which the user wrote it."""
    text = json.dumps(value, ensure_ascii=False)
    text = "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)
    return text if len(text) <= 120 else text[:117] + "..."


def check_word(field: str, value: str) -> list[str]:
    """Findings about a text that becomes one word of the configuration."""
    if PROMPT in value:
        return [
            f"{field} {shown(value)}: it holds {PROMPT!r}, at which installimage would ask a question; use "
            "another value"
        ]
    if not value:
        return [f"{field}: it is empty; give one word, or leave it out"]
    if not _WORD.match(value):
        return [
            f"{field} {shown(value)}: only letters, digits and @%+=:,./_~- are taken (no spaces, quotes or line "
            "breaks); use a value without them"
        ]
    return []


def check_passphrase(field: str, value: str) -> list[str]:
    """Findings about a passphrase, which is never shown."""
    if len(value) < 8:
        return [f"{field}: it has {len(value)} characters; use at least 8"]
    if PROMPT in value or not _PASSPHRASE.match(value):
        return [
            f"{field}: it holds a space, a quote, a backslash, a line break, a character that is not ASCII, or "
            f"{PROMPT!r}; use a passphrase without them"
        ]
    return []


def mebibytes(size: str) -> int | None:
    """``512M``, ``512MiB``, ``40G`` or ``2T`` in MiB; None when it is none of them (also for ``all``)."""
    match = _SIZE.match(size)
    return int(match.group(1)) * _MIB[match.group(2)] if match else None


def check_size(field: str, size: str) -> list[str]:
    """Findings about a size."""
    if size == ALL or mebibytes(size):
        return []
    return [
        f"{field} {shown(size)}: give a number with M, G or T, such as 512M or 40G, or all for the rest of the disk"
    ]


SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\Z")
#: The last one in the name counts.
_ARCH = re.compile(r".*-(32|64|i386|amd64|arm64)-")
#: What a shell makes of the second field when it counts with it: a number, the value of an unset variable, or an error.
_NUMBER, _NAME_WORD = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z"), re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DISTROS = ("suse", "centos", "ubuntu", "arch", "rocky", "alma", "rhel")
#: What installimage calls an architecture → what the kernel calls it.
MACHINES = {"32": "i686", "i386": "i686", "64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
RHEL_FAMILY = ("centos", "rocky", "alma", "rhel")
EXAMPLE = "Debian-1200-bookworm-amd64-base.tar.zst"


class InvalidImageName(ValueError):
    """installimage would refuse the file name, or misread it; the text says why and what to do."""


class ImageName(NamedTuple):
    """A file name, read as installimage reads it. ``machine``: the architecture as ``uname -m`` says it.

    ``version``: 0 for a word such as bookworm or latest; None where no rule about versions can apply, as for 24.04.
    """

    distro: str
    version: int | None
    arch: str
    machine: str


def parse_image_name(name: str) -> ImageName:
    """Distribution, version and architecture of an image file; raises :class:`InvalidImageName`."""
    if not _NAME.match(name):
        raise InvalidImageName(f"use letters, digits, '.', '_', '+' and '-', such as {EXAMPLE}")
    suffix = [end for end in SUFFIXES if name.endswith(end) and len(name) > len(end)]
    if not suffix:
        raise InvalidImageName(
            f"installimage unpacks only {', '.join(SUFFIXES)}; pack the root file system so, and name it like {EXAMPLE}"
        )
    arch = _ARCH.match(name)
    if not arch:
        raise InvalidImageName(
            "installimage reads the architecture from the name, and finds none of -amd64-, -arm64-, -64-, -i386- "
            f"and -32-; name it like {EXAMPLE}"
        )
    field = name.split("-")[1]
    version = int(field) if _NUMBER.match(field) else 0 if not field or _NAME_WORD.match(field) else None
    # The order is installimage's: the first word that is found anywhere in the name wins.
    lower = name.lower()
    distro = next((word for word in _DISTROS if word in lower), "debian")
    return ImageName(distro, version, arch.group(1), MACHINES[arch.group(1)])


def release(image: ImageName, *ranges: tuple[int, int]) -> bool:
    """Whether the version of an image lies in one of these ranges (first, one after the last)."""
    return image.version is not None and any(low <= image.version < high for low, high in ranges)


def check_architecture(name: str, machine: str) -> None:
    """Raise :class:`InvalidImageName` when an image is not for a machine whose ``uname -m`` is ``machine``."""
    found = parse_image_name(name)
    if found.machine == machine or (found.machine == "i686" and machine == "x86_64"):
        return
    raise InvalidImageName(
        f"it is an image for {found.machine} ({found.arch} in its name), and the machine is {machine}; use an "
        "image for this architecture"
    )
