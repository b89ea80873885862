# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""cpio archives (newc) for the kernel: owner root, no times, equal bytes for equal content."""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterable
from dataclasses import dataclass

_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """A member; ``device`` are the two numbers of a device node."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def folder(name: str) -> Entry:
    """An empty folder."""
    return Entry(name, stat.S_IFDIR | 0o755)


def file(name: str, data: bytes, mode: int = 0o644) -> Entry:
    """A file."""
    return Entry(name, stat.S_IFREG | mode, data)


def link(name: str, target: str) -> Entry:
    """A symbolic link."""
    return Entry(name, stat.S_IFLNK | 0o777, target.encode())


def character_device(name: str, major: int, minor: int) -> Entry:
    """A device node, which no build needs root for in an archive."""
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """The archive; the folders of its members come before them."""
    members: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.name.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            members.setdefault(parent, folder(parent))
        members[entry.name] = entry
    ordered = [*members.values(), Entry(_TRAILER, 0)]
    return b"".join(_record(number, entry) for number, entry in enumerate(ordered, 1))


def pack(data: bytes) -> bytes:
    """gzip without name and time."""
    return gzip.compress(data, 9, mtime=0)


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
