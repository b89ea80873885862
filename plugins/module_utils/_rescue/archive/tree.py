# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What of a tree is packed, and the archive that it becomes, in the pax format: the same bytes for the same facts.

Python's tarfile would do, but for what prebaked systems hold: binary extended attributes, and files with holes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..._common.text import escaped


class NotPacked(Exception):
    """No archive was made; the text says why, and what helps."""


def shown(name: bytes) -> str:
    """A file name (bytes) as text that is safe to print, at most 200 characters of it."""
    return escaped(name.decode("utf-8", "backslashreplace"))[:200]


# --- Headers of pax archives, the same bytes for the same facts (pure).


BLOCK = 512
FILE, HARD_LINK, SYMLINK, CHARACTER, FOLDER, FIFO = b"0", b"1", b"2", b"3", b"5", b"6"
PAX = b"x"
END = bytes(2 * BLOCK)

_NAME_BYTES = 100
_LARGEST_ID = 0o7777777
_LARGEST = 0o77777777777
#: The name of a header with more fields of the next one; readers never make a file of it.
_MORE = b"./PaxHeaders/more"


def pax_member(
    name: bytes,
    kind: bytes,
    mode: int,
    uid: int,
    gid: int,
    mtime: int,
    size: int = 0,
    target: bytes = b"",
    device: tuple[int, int] = (0, 0),
    more: Mapping[bytes, bytes] | None = None,
) -> bytes:
    """All header blocks of one member, as bytes. ``name`` and ``target``: bytes; ``mtime``: whole seconds.

    ``more``: pax records (bytes → bytes) beside those that the facts themselves need.
    """
    records = dict(more or {})
    if len(name) > _NAME_BYTES:
        records.setdefault(b"path", name)
    if len(target) > _NAME_BYTES:
        records[b"linkpath"] = target
    for key, value, largest in ((b"size", size, _LARGEST), (b"uid", uid, _LARGEST_ID), (b"gid", gid, _LARGEST_ID)):
        if value > largest:
            records[key] = b"%d" % value
    if not 0 <= mtime <= _LARGEST:
        records[b"mtime"] = b"%d" % mtime
    before = b""
    if records:
        content = b"".join(_record(key, records[key]) for key in sorted(records))
        before = _ustar(_MORE, PAX, 0o644, 0, 0, 0, len(content), b"", (0, 0)) + padded(content)
    return before + _ustar(name, kind, mode, uid, gid, mtime, size, target, device)


def padded(content: bytes) -> bytes:
    """Bytes, filled up to whole blocks."""
    return content + bytes(-len(content) % BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    """``LENGTH key=value`` and a new line, where LENGTH counts itself."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 1
    while length != len(b"%d" % length) + len(rest):
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _ustar(
    name: bytes,
    kind: bytes,
    mode: int,
    uid: int,
    gid: int,
    mtime: int,
    size: int,
    target: bytes,
    device: tuple[int, int],
) -> bytes:
    fields = [
        name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        _octal(mode & 0o7777, 8),
        _octal(uid if uid <= _LARGEST_ID else 0, 8),
        _octal(gid if gid <= _LARGEST_ID else 0, 8),
        _octal(size if size <= _LARGEST else 0, 12),
        _octal(mtime if 0 <= mtime <= _LARGEST else 0, 12),
        b" " * 8,
        kind,
        target[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        b"ustar\x0000",
        bytes(64),  # names of owner and group: numbers count
        _octal(device[0], 8),
        _octal(device[1], 8),
    ]
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _octal(number: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, number)


# --- Where a file holds anything but zeros, so that a file of holes takes no more room than it has content.


#: Runs of zeros count when they fill a piece of this size, at a multiple of it.
PIECE = 64 * 1024
_ZEROS = bytes(PIECE)


def segments(fd: int, size: int) -> list[tuple[int, int]]:
    """The parts of an open file with content, as a list of (offset, length); the same for the same content."""
    found: list[tuple[int, int]] = []
    for start, stop in _data(fd, size):
        place = start - start % PIECE
        while place < stop:
            piece = os.pread(fd, min(PIECE, size - place), place)
            if not piece:
                break
            if piece != _ZEROS[: len(piece)]:
                if found and found[-1][0] + found[-1][1] == place:
                    found[-1] = (found[-1][0], found[-1][1] + len(piece))
                elif not found or place > found[-1][0]:
                    found.append((place, len(piece)))
            place += PIECE
    return found


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """What the file system calls data: it knows holes without reading them. Pieces are merged, ascending."""
    place = 0
    while place < size:
        try:
            start = os.lseek(fd, place, os.SEEK_DATA)
            stop = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            if error.errno == errno.EINVAL:  # a file system that knows no holes
                yield place, size
                return
            raise
        stop = min(stop, size)
        yield max(start, place), stop
        # a piece that was looked at as a whole is not looked at again
        place = max(stop, min(size, -(-stop // PIECE) * PIECE))


def sparse_map(parts: Iterable[tuple[int, int]], size: int) -> bytes:
    """The map that precedes the content of a file with holes (pax, format 1.0), before it is padded."""
    listed = list(parts)
    if not listed or listed[-1][0] + listed[-1][1] < size:
        listed.append((size, 0))
    numbers = [len(listed)] + [number for part in listed for number in part]
    return b"".join(b"%d\n" % number for number in numbers)


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
            return HARD_LINK
        kinds = (
            (stat.S_ISREG, FILE),
            (stat.S_ISDIR, FOLDER),
            (stat.S_ISLNK, SYMLINK),
            (stat.S_ISFIFO, FIFO),
            (stat.S_ISCHR, CHARACTER),
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
        self._write(END)

    def _put(self, member: Member) -> None:
        path, info = self._tree.path(member), member.info
        records = {} if member.kind == HARD_LINK else attributes(path)
        facts: dict[str, Any] = {
            "kind": member.kind,
            "mode": stat.S_IMODE(info.st_mode),
            "uid": info.st_uid,
            "gid": info.st_gid,
            "mtime": min(int(info.st_mtime_ns // 10**9), self._epoch),
            "target": b"./" + member.link if member.kind == HARD_LINK else member.link,
        }
        name = b"./" + member.name
        if member.kind == FOLDER and member.name:
            name += b"/"
        if member.kind != FILE or not info.st_size:
            self._write(pax_member(name, more=records, **facts))
            return
        fd = _open(path, info)
        try:
            parts = segments(fd, info.st_size) if info.st_blocks * 512 < info.st_size else []
            if parts or _all_hole(info):
                self._sparse(name, fd, info.st_size, parts, facts, records)
            else:
                self._write(pax_member(name, size=info.st_size, more=records, **facts))
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
        listed = padded(sparse_map(parts, size))
        stored = len(listed) + sum(length for _place, length in parts)
        if stored >= size:
            self._write(pax_member(name, size=size, more=records, **facts))
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
        self._write(pax_member(folder + b"/GNUSparseFile.0/" + base, size=stored, more=more, **facts))
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
        self._write(bytes(-total % BLOCK))
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
