# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the beginning of a blob, to tell what is in it: a raw image, one packed with tar, or a root file system."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile

from commands.parts.archive import Archive, Entry
from commands.parts.decompress import DECODERS
from commands.parts.digest import Digest
from commands.parts.errors import Refused
from commands.parts.formats import compression
from commands.parts.incoming import Incoming
from commands.parts.sizes import MIB

ENOUGH = MIB // 4
RAW_NAME = re.compile(rb".*\.(raw|img)(\.(gz|bz2|xz|zst))?")


def beginning(source) -> bytes:
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
        with contextlib.suppress(Exception):  # whatever is wrong with it is said when all of it is read
            return DECODERS[kind]().decompress(packed, ENOUGH)
        return b""
    with tempfile.TemporaryFile() as file:
        file.write(packed)
        file.seek(0)
        try:
            process = subprocess.Popen(["zstd", "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            raise Refused("image: it is compressed with zstd, and zstd is missing in this rescue") from None
        with process:
            head = process.stdout.read(ENOUGH) if process.stdout else b""
            process.kill()
    return head


def kind_of_content(head: bytes) -> str:
    """Tell what begins so: raw, raw-in-tar or rootfs."""
    if head[257:262] != b"ustar":
        return "raw"
    with contextlib.suppress(Refused, StopIteration):  # cut off, or refused when all of it is read
        entry = first_file(Archive([head]).entries())
        if RAW_NAME.fullmatch(entry.name):
            return "raw-in-tar"
    return "rootfs"


def first_file(entries) -> Entry:
    """Return the first member that is no folder."""
    return next(entry for entry in entries if entry.kind != "folder")


class TarMember:
    """The only file of an archive, as a source; its last byte comes only when the archive is proven."""

    def __init__(self, outer: Incoming):
        self.outer, self.shown = outer, outer.shown
        self.archive = Archive(outer.blocks())
        self.entries = self.archive.entries()
        self.entry = first_file(self.entries)
        self.size = self.entry.header.size
        self.received = 0

    def chunks(self):
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

    def _zeros(self, end: int):
        while self.received < end:
            piece = bytes(min(MIB, end - self.received))
            self.received += len(piece)
            yield piece


def raw_incoming(source, digest: Digest, kind: str) -> Incoming:
    """Return the raw image of a blob, packed with tar or not."""
    incoming = Incoming(source, digest)
    return Incoming(TarMember(incoming), Digest("sha256", "none")) if kind == "raw-in-tar" else incoming
