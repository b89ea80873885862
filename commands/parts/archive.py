# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a tar archive whose headers nobody vouches for."""

from __future__ import annotations

import re
import struct
import tarfile
from typing import Any

from commands.parts.errors import Refused
from commands.parts.sizes import MIB

#: What tarfile lets through when a header is nonsense.
NONSENSE = (
    tarfile.TarError, ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError, EOFError,
    struct.error,
)  # fmt: skip
KINDS = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.CONTTYPE: "file", tarfile.GNUTYPE_SPARSE: "file",
    tarfile.LNKTYPE: "hard link", tarfile.SYMTYPE: "symlink", tarfile.DIRTYPE: "folder", tarfile.FIFOTYPE: "fifo",
    tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device",
}  # fmt: skip


class Pieces:
    """Blocks of bytes as a file that is read once, forward; its end must not be reached."""

    def __init__(self, pieces):
        self.pieces = iter(pieces)
        self.rest = memoryview(b"")
        self.position = 0

    def tell(self) -> int:
        """Return how many bytes have been read or skipped."""
        return self.position

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        found = []
        while size:
            self._fill()
            part, self.rest = self.rest[:size], self.rest[size:]
            found.append(part)
            size -= len(part)
            self.position += len(part)
        return b"".join(found)

    def seek(self, place: int) -> None:
        """Skip bytes."""
        if place < self.position:
            raise Refused("image: the tar archive is damaged: a header leads back")
        while self.position < place:
            self._fill()
            length = min(len(self.rest), place - self.position)
            self.rest = self.rest[length:]
            self.position += length

    def drain(self) -> None:
        """Read what is left behind the end of the archive."""
        self.rest = memoryview(b"")
        for _piece in self.pieces:
            pass

    def _fill(self) -> None:
        while not self.rest:
            piece = next(self.pieces, None)
            if piece is None:
                raise Refused("image: the tar archive is truncated")
            self.rest = memoryview(piece)


class Header(tarfile.TarInfo):
    """A header that ends the archive when it is damaged, where tarfile would take it for the end."""

    EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, b"X", tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        """Take a block of 512 bytes apart."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined] # typeshed does not know it
            raise
        except tarfile.HeaderError as error:
            raise Refused("image: the tar archive is damaged: %s" % error) from None
        if header.size < 0 or (header.type in cls.EXTENDED and header.size > MIB):
            raise Refused("image: the tar archive is damaged: a header of %d bytes" % header.size)
        return header


class Entry:
    """One member of an archive, found harmless."""

    def __init__(self, header: tarfile.TarInfo):
        self.header = header
        self.name = inner_name(header.name, "the name")
        self.kind = KINDS.get(header.type, "")
        if not self.kind:
            raise Refused("image: %s is of the unknown kind %r" % (shown(self.name), header.type))
        self.target = b""
        if self.kind == "hard link":
            self.target = inner_name(header.linkname, "the hard link %s with the target" % shown(self.name))
        elif self.kind == "symlink":
            self.target = header.linkname.encode("utf-8", "surrogateescape")  # where it leads is up to the new system
            if not self.target or b"\0" in self.target:
                raise Refused("image: the symlink %s leads nowhere" % shown(self.name))
        # containerd's snapshots hold whiteouts of overlayfs: character devices 0:0, which open nothing
        whiteout = header.ischr() and (header.devmajor, header.devminor) == (0, 0)
        if self.kind == "device" and not whiteout and not self.name.startswith(b"dev/"):
            raise Refused("image: %s is a device node outside of /dev" % shown(self.name))
        if not self.name and self.kind != "folder":
            raise Refused("image: the root folder is a %s" % self.kind)
        if not all(0 <= number < 2**32 - 1 for number in (header.uid, header.gid)):
            raise Refused("image: %s belongs to %d:%d" % (shown(self.name), header.uid, header.gid))
        self.extents = self._extents(header)

    def _extents(self, header: tarfile.TarInfo) -> list:
        """Return place and length of the data in the file: one piece, unless it has holes."""
        if self.kind != "file":
            return []
        holes: Any = header.sparse  # typeshed takes it for bytes
        if holes is None:
            return [(0, header.size)]
        end, found = 0, []
        for start, length in holes:
            if start < end or length < 0 or start + length > header.size:
                raise Refused("image: the holes of %s make no sense" % shown(self.name))
            end = start + length
            found.append((start, length))
        return found


class Archive:
    """The members of an archive, in order; their data can be read until the next one is asked for."""

    def __init__(self, pieces):
        self.pieces = Pieces(pieces)

    def entries(self):
        """Yield every member; a member that would reach out of the new root file system is refused."""
        try:
            stream: Any = self.pieces  # to read from; typeshed wants it to be writable
            tar: Any = tarfile.TarFile(  # reads forward only, unless a header makes it
                fileobj=stream, mode="r", tarinfo=Header, encoding="utf-8", errors="surrogateescape"
            )
            for header in iter(tar.next, None):
                tar.members = []  # nobody looks back, and there may be a million of them
                if header.type != b"V":  # the name of the archive
                    yield Entry(header)
            self.pieces.drain()
        except NONSENSE as error:
            raise Refused("image: the tar archive is damaged: %s" % error) from None

    def data(self, entry: Entry):
        """Yield (place, bytes) of a file."""
        stream = self.pieces
        stream.seek(entry.header.offset_data)
        for start, length in entry.extents:
            place, end = start, start + length
            while place < end:
                data = stream.read(min(MIB, end - place))
                yield place, data
                place += len(data)


def inner_name(text: str, what: str) -> bytes:
    """Return a name relative to the new root; refuse one that leads elsewhere."""
    name = text.encode("utf-8", "surrogateescape")
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if name.startswith(b"/") or b".." in parts or b"\0" in name:
        raise Refused("image: %s %s leads out of the new root file system" % (what, shown(name)))
    return b"/".join(parts)


def shown(name: bytes) -> str:
    """Return a name for a message: one line, not endless."""
    text = re.sub(r"[^ -~]", "?", name.decode("utf-8", "replace"))
    return "'%s'" % (text if len(text) <= 200 else text[:200] + "…")
