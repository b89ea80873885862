# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""cpio archives (newc) as the kernel unpacks them into its first root file system: made and read (pure)."""

from __future__ import annotations

import io
import lzma
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .image_error import ImageError

COMPRESSIONS = ("gzip", "xz", "none")
_MAGIC = (b"070701", b"070702")
_TRAILER = "TRAILER!!!"
_HEADER = 110
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_GZIP_HEADER = _GZIP + b"\x08" + bytes(5) + b"\x02\x03"  # deflate, packed as well as it goes, on Unix
_FILE, _FOLDER = 0o100000, 0o040000
_MOST_BYTES = 64 * 1024 * 1024  # of what is unpacked
_MOST_MEMBERS = 10_000
_MOST_ARCHIVES = 100  # that follow one another; each may be nothing but an end
_FIELDS = re.compile(rb"[0-9A-Fa-f]{104}\Z")
_USED = re.compile(rb"[^\0]")
_XZ_MEMORY = 128 * 1024 * 1024


@dataclass(frozen=True)
class Member:
    """A file, folder or link in an archive."""

    name: str
    mode: int
    data: bytes


def archive(files: Mapping[str, bytes], compression: str = "gzip", mode: int = 0o600) -> bytes:
    """An archive of files (name → content) and the folders they need; equal input gives equal bytes."""
    if compression not in COMPRESSIONS:
        raise ImageError(f"compression {compression!r} is not one of {', '.join(COMPRESSIONS)}")
    out = io.BytesIO()
    folders: set[str] = set()
    number = 0
    for name in sorted(files):
        if not name or name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
            raise ImageError(f"archive member {name!r} is not a plain relative path")
        for folder in _parents(name):
            if folder not in folders:
                folders.add(folder)
                number += 1
                _append(out, folder, b"", _FOLDER | 0o755, number, links=2)
        number += 1
        _append(out, name, files[name], _FILE | mode, number)
    _append(out, _TRAILER, b"", 0, 0)
    return compress(out.getvalue(), compression)


def compress(data: bytes, compression: str) -> bytes:
    """Pack an archive as kernels read it: gzip without name and time, xz with CRC32."""
    if compression == "gzip":
        return gzipped(data)
    if compression == "xz":
        return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC32, preset=6 | lzma.PRESET_EXTREME)
    return data


def gzipped(data: bytes) -> bytes:
    """gzip without name and time; the header of Python's own differs between versions, and ETags with it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    return _GZIP_HEADER + body + struct.pack("<LL", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def aligned(length: int) -> int:
    """How many zero bytes go before an archive behind ``length`` bytes."""
    return -length % 4


def members(data: bytes) -> Iterator[Member]:
    """Every member of archives that follow one another, plain, gzip or xz, zeros between them."""
    budget = _Budget()
    while True:
        data = data.lstrip(b"\0")
        if not data:
            return
        plain, data = _unpacked(data, budget)
        yield from plain


def contents(data: bytes) -> dict[str, bytes]:
    """Name → content of all that are no folders."""
    return {member.name: member.data for member in members(data) if member.mode & 0o170000 != _FOLDER}


class _Budget:
    """What archives that follow one another may have altogether."""

    def __init__(self) -> None:
        self.bytes, self.members, self.archives = _MOST_BYTES, _MOST_MEMBERS, _MOST_ARCHIVES

    def take(self, what: str, count: int = 1) -> None:
        left = getattr(self, what) - count
        setattr(self, what, left)
        if left < 0:
            most = {"bytes": _MOST_BYTES, "members": _MOST_MEMBERS, "archives": _MOST_ARCHIVES}[what]
            raise ImageError(f"the archive has more than {most} {what}")


def _unpacked(data: bytes, budget: _Budget) -> tuple[list[Member], bytes]:
    """The members of the first archive, and what follows it."""
    if data.startswith(_MAGIC):
        found, used = _plain(data, 0, budget)
        return found, data[used:]
    if data.startswith(_ZSTD):
        raise ImageError("the archive is packed with zstd, which cannot be read here; use gzip or xz")
    unpacker: zlib._Decompress | lzma.LZMADecompressor
    if data.startswith(_GZIP):
        unpacker = zlib.decompressobj(31)
    elif data.startswith(_XZ):
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
    else:
        raise ImageError(f"no archive: it begins with {data[:6].hex()}")
    try:
        plain = unpacker.decompress(data, budget.bytes + 1)
    except (zlib.error, lzma.LZMAError) as error:
        raise ImageError(f"the archive is damaged: {error}") from error
    budget.take("bytes", len(plain))
    if not unpacker.eof:
        raise ImageError("the archive is cut off")
    budget.take("archives")
    found = []
    begin = _USED.search(plain)
    while begin:
        more, used = _plain(plain, begin.start(), budget)
        found += more
        begin = _USED.search(plain, used)
    return found, unpacker.unused_data


def _plain(data: bytes, origin: int, budget: _Budget) -> tuple[list[Member], int]:
    """The members of an archive that is not packed and begins at ``origin``, and where it ends."""
    found: list[Member] = []
    budget.take("archives")
    at = origin
    while True:
        header = data[at : at + _HEADER]
        if header[:6] not in _MAGIC or not _FIELDS.match(header, 6):
            raise ImageError(f"the archive is damaged at byte {at}: no header")
        fields = [int(header[place : place + 8], 16) for place in range(6, _HEADER, 8)]
        mode, length, name_length = fields[1], fields[6], fields[11]
        begin = at + _HEADER
        name = data[begin : begin + name_length].rstrip(b"\0").decode("utf-8", "replace")
        content = origin + _up(begin + name_length - origin)
        at = origin + _up(content + length - origin)
        if content + length > len(data):
            raise ImageError(f"the archive is cut off in member {name!r:.100}")
        if name == _TRAILER:
            return found, min(at, len(data))
        budget.take("members")
        found.append(Member(name, mode, data[content : content + length]))


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def _append(out: io.BytesIO, name: str, data: bytes, mode: int, number: int, links: int = 1) -> None:
    raw = name.encode("utf-8") + b"\0"
    fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(raw), 0)
    out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + raw)
    out.write(b"\0" * aligned(out.tell()))
    out.write(data)
    out.write(b"\0" * aligned(out.tell()))


def _up(offset: int) -> int:
    return offset + aligned(offset)
