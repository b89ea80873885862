# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Mounts as the kernel lists them: by their ids, since a bind mount has the device number of what it shows."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from typing import NamedTuple

from .text import whole_number

_DEVICE = re.compile(r"[0-9]+:[0-9]+\Z")


class Mount(NamedTuple):
    """One line of /proc/self/mountinfo; ``point`` is the path it is mounted at, ``kind`` its file system's type.

    ``device`` is major:minor, ``options`` those of the file system.
    """

    id: int
    device: str
    point: str
    kind: str
    source: str
    options: str


def unescape(text: str) -> str:
    r"""A field of /proc/swaps, /proc/self/mountinfo or fstab, which write a space as \040."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match.group(1), 8)), text)


def parse(text: str | None) -> list[Mount]:
    """The lines of a mountinfo as a list of :class:`Mount`. Pure."""
    found = []
    for line in (text or "").split("\n"):
        fields = line.split(" ")
        # optional fields, any number of them, end with a field of one dash
        number, dash = whole_number(fields[0]), fields.index("-", 6) if "-" in fields[6:-3] else 0
        if number is not None and dash and _DEVICE.match(fields[2]):
            kind, source, options = fields[dash + 1 : dash + 4]
            found.append(Mount(number, fields[2], unescape(fields[4]), kind, unescape(source), options))
    return found


def read() -> list[Mount]:
    """Every mount that this process sees. Raises OSError."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return parse(file.read())


def id_of(fd: int) -> int:
    """The id of the mount that an open file or folder lies in. Raises OSError when the kernel does not report it."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        for line in file:
            name, _colon, value = line.partition(":")
            if name == "mnt_id":
                return int(value)
    raise OSError(errno.ENOSYS, "the kernel does not tell the id of its mount")


def id_at(path: str) -> int:
    """The id of the mount that a path shows, the path itself no link that is followed. Raises OSError."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return id_of(fd)
    finally:
        os.close(fd)


def private_mounts() -> None:
    """Leave the mount namespace: no mount of this process is seen outside, or holds what others unmount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) == 0:  # CLONE_NEWNS
        libc.mount(b"none", b"/", None, ctypes.c_ulong(0x84000), None)  # MS_REC | MS_SLAVE
