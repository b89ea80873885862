# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What of a tree is packed, and the archive that it becomes."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import pax
from .errors import NotPacked, shown

# --- The members of a root file system in the one order in which they are always packed.


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
            return pax.HARD_LINK
        kinds = (
            (stat.S_ISREG, pax.FILE),
            (stat.S_ISDIR, pax.FOLDER),
            (stat.S_ISLNK, pax.SYMLINK),
            (stat.S_ISFIFO, pax.FIFO),
            (stat.S_ISCHR, pax.CHARACTER),
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
            raise NotPacked(f"{shown(path)}: its attribute {name} cannot be read: {error.strerror}") from error
        records[b"SCHILY.xattr." + os.fsencode(name)] = value
    return records


# --- A tree as an archive: the same tree gives the same bytes, on any machine at any time.


_PIECE = 1 << 20


class Packing:
    """Writes one archive. ``members`` and ``bytes`` (of content) count what went in."""

    def __init__(self, source: Tree, epoch: int, write: Callable[[bytes], object]) -> None:
        """``source``: a :class:`Tree`; ``epoch``: no member is younger (seconds); ``write``: takes bytes."""
        self._tree, self._epoch, self._write = source, epoch, write
        self.members = self.bytes = 0

    def run(self) -> None:
        """Pack everything, the end of the archive included."""
        for member in self._tree.members():
            self._put(member)
            self.members += 1
        self._write(pax.END)

    def _put(self, member: Member) -> None:
        path, info = self._tree.path(member), member.info
        records = {} if member.kind == pax.HARD_LINK else attributes(path)
        facts: dict[str, Any] = {
            "kind": member.kind,
            "mode": stat.S_IMODE(info.st_mode),
            "uid": info.st_uid,
            "gid": info.st_gid,
            "mtime": min(int(info.st_mtime_ns // 10**9), self._epoch),
            "target": b"./" + member.link if member.kind == pax.HARD_LINK else member.link,
        }
        name = b"./" + member.name
        if member.kind == pax.FOLDER and member.name:
            name += b"/"
        if member.kind != pax.FILE or not info.st_size:
            self._write(pax.member(name, more=records, **facts))
            return
        fd = _open(path, info)
        try:
            parts = pax.segments(fd, info.st_size) if info.st_blocks * 512 < info.st_size else []
            if parts or _all_hole(info):
                self._sparse(name, fd, info.st_size, parts, facts, records)
            else:
                self._write(pax.member(name, size=info.st_size, more=records, **facts))
                self._content(fd, [(0, info.st_size)], name)
            # a file that changes meanwhile would be half one and half the other
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if (after.st_size, after.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
            raise NotPacked(f"{shown(name)} changed while it was packed; pack a file system that is not in use")

    def _sparse(
        self,
        name: bytes,
        fd: int,
        size: int,
        parts: Sequence[tuple[int, int]],
        facts: dict[str, Any],
        records: dict[bytes, bytes],
    ) -> None:
        listed = pax.padded(pax.sparse_map(parts, size))
        stored = len(listed) + sum(length for _place, length in parts)
        if stored >= size:
            self._write(pax.member(name, size=size, more=records, **facts))
            self._content(fd, [(0, size)], name)
            return
        folder, _slash, base = name.rpartition(b"/")
        more = dict(records)
        more.update(
            {
                b"GNU.sparse.major": b"1",
                b"GNU.sparse.minor": b"0",
                b"GNU.sparse.name": name,
                b"GNU.sparse.realsize": b"%d" % size,
            }
        )
        self._write(pax.member(folder + b"/GNUSparseFile.0/" + base, size=stored, more=more, **facts))
        self._write(listed)
        self._content(fd, parts, name)

    def _content(self, fd: int, parts: Sequence[tuple[int, int]], name: bytes) -> None:
        total = 0
        for place, length in parts:
            total += length
            while length:
                piece = os.pread(fd, min(_PIECE, length), place)
                if not piece:
                    raise NotPacked(f"{shown(name)} became shorter while it was packed")
                self._write(piece)
                place, length = place + len(piece), length - len(piece)
        self._write(bytes(-total % pax.BLOCK))
        self.bytes += total


def _open(path: bytes, info: os.stat_result) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags)
    found = os.fstat(fd)
    if (found.st_dev, found.st_ino) != (info.st_dev, info.st_ino):
        with contextlib.suppress(OSError):
            os.close(fd)
        raise NotPacked(f"{shown(path)} was replaced while it was packed; pack a file system that is not in use")
    return fd


def _all_hole(info: os.stat_result) -> bool:
    return info.st_blocks == 0 and info.st_size > 0
