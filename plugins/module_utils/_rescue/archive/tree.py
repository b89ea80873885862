# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The members of a root file system in the one order in which they are always packed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from . import header
from .errors import NotPacked, shown

#: Folders that are packed empty: the kernel's, and what does not outlive a boot or can be fetched again.
EMPTIED = frozenset(
    [
        b"dev",
        b"proc",
        b"run",
        b"sys",
        b"tmp",
        b"var/cache/apt/archives",
        b"var/cache/dnf",
        b"var/cache/zypp/packages",
        b"var/lib/apt/lists",
        b"var/lib/systemd/coredump",
        b"var/tmp",
    ]
)
#: What belongs to one disk or one boot: the installation of the archive makes it again.
LEFT_OUT = frozenset(
    [
        b"etc/fstab",
        b"installimage.conf",
        b"installimage.debug",
        b"lost+found",
        b"var/cache/apt/pkgcache.bin",
        b"var/cache/apt/srcpkgcache.bin",
        b"var/cache/ldconfig/aux-cache",
        b"var/lib/systemd/random-seed",
    ]
)


class Member:
    """One member: its name below the root (bytes, no slash in front), what lstat says, what it links to."""

    __slots__ = ("info", "link", "name")

    def __init__(self, name: bytes, info: os.stat_result, link: bytes = b"") -> None:
        self.name, self.info, self.link = name, info, link

    @property
    def kind(self) -> bytes:
        """Type of the member in the archive."""
        mode = self.info.st_mode
        if self.link and not stat.S_ISLNK(mode):
            return header.HARD_LINK
        kinds = (
            (stat.S_ISREG, header.FILE),
            (stat.S_ISDIR, header.FOLDER),
            (stat.S_ISLNK, header.SYMLINK),
            (stat.S_ISFIFO, header.FIFO),
            (stat.S_ISCHR, header.CHARACTER),
        )
        return next(kind for check, kind in kinds if check(mode))


class Tree:
    """The tree below ``top``; ``left_out`` counts what was not packed although it was there, by its kind."""

    def __init__(self, top: str, exclude: Iterable[str] = ()) -> None:
        """``exclude``: paths below the root, absolute as users write them, to leave out with all below."""
        self.top = os.fsencode(top)
        self.left_out: dict[str, int] = {}
        self._exclude = LEFT_OUT | {os.fsencode(path).strip(b"/") for path in exclude}
        self._seen: dict[tuple[int, int], bytes] = {}
        self._devices: set[int] = set()

    def cross(self, mount: str) -> None:
        """Pack this mount point's file system too; all others that are mounted below the root are left out."""
        self._devices.add(os.lstat(os.path.join(self.top, os.fsencode(mount).strip(b"/"))).st_dev)

    def members(self) -> Iterator[Member]:
        """Every member, folders before what is in them, names in the order of their bytes."""
        info = os.lstat(self.top)
        self._devices.add(info.st_dev)
        yield Member(b"", info)
        yield from self._below(b"")

    def path(self, member: Member) -> bytes:
        """Where a member lies."""
        return os.path.join(self.top, member.name) if member.name else self.top

    def _below(self, folder: bytes) -> Iterator[Member]:
        for name in sorted(os.listdir(os.path.join(self.top, folder) if folder else self.top)):
            inner = folder + b"/" + name if folder else name
            if inner in self._exclude:
                continue
            member = self._member(inner)
            if member is None:
                continue
            yield member
            if stat.S_ISDIR(member.info.st_mode) and inner not in EMPTIED and member.info.st_dev in self._devices:
                yield from self._below(inner)

    def _member(self, name: bytes) -> Member | None:
        path = os.path.join(self.top, name)
        info = os.lstat(path)
        mode = info.st_mode
        if stat.S_ISSOCK(mode):
            self._leave("sockets")
            return None
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and info.st_rdev):
            self._leave("device nodes")
            return None
        if stat.S_ISLNK(mode):
            return Member(name, info, os.readlink(path))
        if not stat.S_ISDIR(mode) and info.st_nlink > 1:
            # the first name has the content; links to names that are left out make the next one the first
            first = self._seen.setdefault((info.st_dev, info.st_ino), name)
            return Member(name, info, first if first != name else b"")
        return Member(name, info)

    def _leave(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


def attributes(path: bytes) -> dict[bytes, bytes]:
    """Extended attributes as pax records, ACLs and capabilities among them; what is the running kernel's own is not."""
    records: dict[bytes, bytes] = {}
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return records
    for name in names:
        if name.startswith("security.") and name != "security.capability":
            continue  # labels of SELinux and IMA are made where the archive is installed
        try:
            value = os.getxattr(path, name, follow_symlinks=False)
        except OSError as error:
            raise NotPacked("%s: its attribute %s cannot be read: %s" % (shown(path), name, error.strerror)) from error
        records[b"SCHILY.xattr." + os.fsencode(name)] = value
    return records
