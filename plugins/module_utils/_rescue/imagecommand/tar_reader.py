# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Reads a tar archive that may be damaged or hostile: its members, and what kind of image they are."""

from __future__ import annotations

import contextlib
import re
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict

from .basics import MIB, Refused
from .incoming import DECODERS, ByteSource, Digest, Incoming, Transfer, compression

# --- Reads a tar archive without trust in its headers.


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

    def __init__(self, pieces: Iterable[bytes]) -> None:
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
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
        """Take a block of 512 bytes apart."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined] # typeshed does not know it
            raise
        except tarfile.HeaderError as error:
            raise Refused(f"image: the tar archive is damaged: {error}") from None
        if header.size < 0 or (header.type in cls.EXTENDED and header.size > MIB):
            raise Refused(f"image: the tar archive is damaged: a header of {header.size} bytes")
        return header


class Entry:
    """One member of an archive, found harmless."""

    def __init__(self, header: tarfile.TarInfo) -> None:
        self.header = header
        self.name = inner_name(header.name, "the name")
        self.kind = KINDS.get(header.type, "")
        if not self.kind:
            raise Refused(f"image: {shown(self.name)} is of the unknown kind {header.type!r}")
        self.target = b""
        if self.kind == "hard link":
            self.target = inner_name(header.linkname, f"the hard link {shown(self.name)} with the target")
        elif self.kind == "symlink":
            self.target = header.linkname.encode("utf-8", "surrogateescape")  # where it leads is up to the new system
            if not self.target or b"\0" in self.target:
                raise Refused(f"image: the symlink {shown(self.name)} leads nowhere")
        # containerd's snapshots hold whiteouts of overlayfs: character devices 0:0, which open nothing
        whiteout = header.ischr() and (header.devmajor, header.devminor) == (0, 0)
        if self.kind == "device" and not whiteout and not self.name.startswith(b"dev/"):
            raise Refused(f"image: {shown(self.name)} is a device node outside of /dev")
        if not self.name and self.kind != "folder":
            raise Refused(f"image: the root folder is a {self.kind}")
        if not all(0 <= number < 2**32 - 1 for number in (header.uid, header.gid)):
            raise Refused(f"image: {shown(self.name)} belongs to {header.uid}:{header.gid}")
        self.extents = self._extents(header)

    def _extents(self, header: tarfile.TarInfo) -> list[tuple[int, int]]:
        """Return place and length of the data in the file: one piece, unless it has holes."""
        if self.kind != "file":
            return []
        holes: Any = header.sparse  # typeshed takes it for bytes
        if holes is None:
            return [(0, header.size)]
        end, found = 0, []
        for start, length in holes:
            if start < end or length < 0 or start + length > header.size:
                raise Refused(f"image: the holes of {shown(self.name)} make no sense")
            end = start + length
            found.append((start, length))
        return found


class Archive:
    """The members of an archive, in order; their data can be read until the next one is asked for."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = Pieces(pieces)

    def entries(self) -> Iterator[Entry]:
        """Yield every member; a member that would reach out of the new root file system is refused."""
        try:
            stream: Any = self.pieces  # to read from; typeshed wants it to be writable
            tar: Any = tarfile.TarFile(  # reads forward only, unless a header makes it
                fileobj=stream, mode="r", tarinfo=Header, encoding="utf-8", errors="surrogateescape"
            )
            for header in iter(tar.next, None):
                tar.members = []  # they are not needed again, and there may be a million of them
                if header.type != b"V":  # the name of the archive
                    yield Entry(header)
            self.pieces.drain()
        except NONSENSE as error:
            raise Refused(f"image: the tar archive is damaged: {error}") from None

    def data(self, entry: Entry) -> Iterator[tuple[int, bytes]]:
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
        raise Refused(f"image: {what} {shown(name)} leads out of the new root file system")
    return b"/".join(parts)


def shown(name: bytes) -> str:
    """Return a name for a message: one line, not endless."""
    text = re.sub(r"[^ -~]", "?", name.decode("utf-8", "replace"))
    return f"'{text if len(text) <= 200 else text[:200] + '…'}'"


# --- What an archive holds: counted before or while it is unpacked, and enough for a system that starts.


#: What matters about a root file system → names that show it.
MARKS = {
    "init": rb"(usr/)?(sbin/init|lib/systemd/systemd)",
    "os-release": rb"(etc|usr/lib)/os-release",
    "kernel": rb"boot/vmlinu.+",
    "grub-install": rb"(usr/)?s?bin/grub2?-install",
    "cloud-init": rb"(usr/|usr/local/)?bin/cloud-init",
    "cloud-init.disabled": rb"etc/cloud/cloud-init\.disabled",
    "i386-pc": rb"usr/lib/grub/i386-pc/normal\.mod",
    "x86_64-efi": rb"usr/lib/grub/x86_64-efi/normal\.mod",
    "arm64-efi": rb"usr/lib/grub/arm64-efi/normal\.mod",
}
MISSING = {
    "init": "it has no init (systemd)",
    "os-release": "it has no os-release, so it is no root file system",
    "kernel": "it has no kernel (/boot/vmlinuz-…); install one, such as linux-image-amd64",
    "grub-install": "it has no grub-install; install GRUB, such as grub-pc-bin, grub-efi-amd64-bin and grub2-common",
    "cloud-init": "the bootstrap data is for cloud-init, and the image has no cloud-init program",
}
ONE_MARK = re.compile(b"|".join(b"(?P<m%d>%s)" % (number, one) for number, one in enumerate(MARKS.values())))
BLOCK_SIZE = 4096
PER_FILE = 512  # an inode and its place in a folder, roughly


class Count(TypedDict):
    """What crosses the pipe from the process that unpacks; ``bytes`` by mount point."""

    members: int
    found: list[str]
    bytes: dict[str, int]


class Extracted(Count):
    """The same of an archive that was unpacked; ``left_out``: how many of what could not be made."""

    left_out: dict[str, int]


class Survey:
    """A count of what is in archives, by the file system that it will be on."""

    def __init__(self, mounts: list[str]) -> None:
        self.mounts = sorted((mount.strip("/").encode() for mount in mounts), key=len, reverse=True)
        self.bytes = {mount.decode(): 0 for mount in self.mounts}
        self.members = 0
        self.found: set[str] = set()

    def add(self, entry: Entry) -> None:
        self.members += 1
        mount = next(one for one in self.mounts if not one or entry.name == one or entry.name.startswith(one + b"/"))
        whole = sum(-(-length // BLOCK_SIZE) * BLOCK_SIZE for _start, length in entry.extents)
        self.bytes[mount.decode()] += whole + PER_FILE
        mark = ONE_MARK.fullmatch(entry.name)
        if mark and mark.lastgroup:
            self.found.add(list(MARKS)[int(mark.lastgroup[1:])])

    def merge(self, other: Count) -> None:
        """Add another count, see as_dict()."""
        self.members += other["members"]
        self.found |= set(other["found"])
        for mount, count in other["bytes"].items():
            self.bytes[mount] += count

    def as_dict(self) -> Count:
        """Return what can cross a pipe."""
        return {"members": self.members, "found": sorted(self.found), "bytes": self.bytes}

    def check(self, wanted: list[str]) -> None:
        """Refuse what would not start, or would not read its bootstrap data."""
        for mark in wanted:
            if mark not in self.found:
                why = f"it has no GRUB for this machine, /usr/lib/grub/{mark}; install its package"
                raise Refused(f"image: {MISSING.get(mark, why)}")
        if "cloud-init" in wanted and "cloud-init.disabled" in self.found:
            raise Refused("bootstrap data: cloud-init is switched off in the image by /etc/cloud/cloud-init.disabled")

    def check_sizes(self, sizes: dict[str, int]) -> None:
        """Refuse what does not fit; sizes are those of the partitions in bytes, by mount point."""
        for mount, size in sizes.items():
            count = self.bytes[mount.strip("/")]
            if count > size * 0.95:  # a file system needs room for itself
                raise Refused(
                    f"image: {mount} needs {count // 10**6} MB, its partition has {size // 10**6} MB; see layout= "
                    "behind the # of the image URL"
                )


def survey_archive(pieces: Iterable[bytes], survey: Survey) -> None:
    """Read an archive to its end and count what is in it."""
    for entry in Archive(pieces).entries():
        survey.add(entry)


# --- Finds out from the beginning of a blob what is in it: a raw image, one packed with tar, or a root file system.


ENOUGH = MIB // 4
RAW_NAME = re.compile(rb".*\.(raw|img)(\.(gz|bz2|xz|zst))?")


def beginning(source: Transfer) -> bytes:
    """Return the first decompressed bytes of a source, whose digest is not known yet; no threads are left behind."""
    packed, chunks = b"", source.chunks()
    with contextlib.closing(chunks):
        while len(packed) < MIB:
            more = next(chunks, b"")
            packed += more
            if not more:
                break
    kind = compression(packed)
    if kind == "none":
        return packed[:ENOUGH]
    if kind != "zst":
        with contextlib.suppress(Exception):  # an error in it is reported when all of it is read
            found: bytes = DECODERS[kind]().decompress(packed, ENOUGH)
            return found
        return b""
    with tempfile.TemporaryFile() as file:
        file.write(packed)
        file.seek(0)
        try:
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                ["zstd", "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except FileNotFoundError:
            raise Refused("image: it is compressed with zstd, and zstd is missing in this rescue") from None
        with process:
            head = process.stdout.read(ENOUGH) if process.stdout else b""
            process.kill()
    return head


def kind_of_content(head: bytes) -> str:
    """The kind of content that begins with these bytes: raw, raw-in-tar or rootfs."""
    if head[257:262] != b"ustar":
        return "raw"
    with contextlib.suppress(Refused, StopIteration):  # cut off, or refused when all of it is read
        entry = first_file(Archive([head]).entries())
        if RAW_NAME.fullmatch(entry.name):
            return "raw-in-tar"
    return "rootfs"


def first_file(entries: Iterator[Entry]) -> Entry:
    """Return the first member that is no folder."""
    return next(entry for entry in entries if entry.kind != "folder")


class TarMember:
    """The only file of an archive, as a source; its last byte comes only when the archive is proven."""

    def __init__(self, outer: Incoming) -> None:
        self.outer, self.shown = outer, outer.shown
        self.archive = Archive(outer.blocks())
        self.entries = self.archive.entries()
        self.entry = first_file(self.entries)
        self.size = self.entry.header.size
        self.received = 0

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, holes as zeros."""
        if self.entry.kind != "file":
            raise Refused("image: the tar archive holds no plain file")
        for place, data in self.archive.data(self.entry):
            yield from self._zeros(place)
            self.received += len(data)
            yield data
        yield from self._zeros(self.size)
        for entry in self.entries:
            if entry.kind != "folder":
                raise Refused("image: beside the raw image there is more in the tar archive")
        self.outer.check()

    def _zeros(self, end: int) -> Iterator[bytes]:
        while self.received < end:
            piece = bytes(min(MIB, end - self.received))
            self.received += len(piece)
            yield piece


def raw_incoming(source: ByteSource, digest: Digest, kind: str) -> Incoming:
    """Return the raw image of a blob, packed with tar or not."""
    incoming = Incoming(source, digest)
    return Incoming(TarMember(incoming), Digest("sha256", "none")) if kind == "raw-in-tar" else incoming
