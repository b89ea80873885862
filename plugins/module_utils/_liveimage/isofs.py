# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The file system of an ISO image: where its files lie, whichever names it gives them.

A reader of our own, because images are written by programs with manners of their own: on s390x, genisoimage names the
record of ".." like that of ".". So the first two records of a folder are known by their place, not by their name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from .image_error import ImageError
from .overlay import Overlay, open_overlay

SECTOR = 2048
SYSTEM_AREA = 16 * SECTOR
_SMALLEST = SYSTEM_AREA + 2 * SECTOR
_MOST_FILES = 10_000
_MOST_BYTES = 16 * 1024 * 1024  # of all folders
_MOST_DESCRIPTORS = 64
_MOST_CONTINUED = 16  # areas that hold the rest of one record's fields
_LONGEST_PATH = 1024
_PRIMARY, _SUPPLEMENTARY, _END_OF_DESCRIPTORS = 1, 2, 255  # types of volume descriptors
_JOLIET = (b"%/@", b"%/C", b"%/E")
_ROOT = 156  # where a descriptor has the record of the root folder
_HEAD = 33  # bytes of a record in front of its name
_IS_FOLDER, _GOES_ON = 2, 0x80  # flags of a record
_NO_NAME = 6  # flags of Rock Ridge's NM


@dataclass(frozen=True)
class Extent:
    """Where a file lies in the image, in bytes."""

    offset: int
    length: int


@dataclass(frozen=True)
class _Record:
    """What a folder says of one file: where, and what the record holds besides."""

    place: int
    name: bytes
    extent: Extent
    flags: int
    system: bytes  # behind the name: Rock Ridge's fields


@dataclass
class _RockRidge:
    """A file's properties by Rock Ridge."""

    name: bytes = b""
    link: bool = False  # symbolic
    moved: bool = False  # this folder is listed elsewhere, too, where it belongs
    child: int | None = None  # the sector of the folder that belongs here


class IsoFiles:
    """The files of an image; paths are as on Linux, with their long names in lower case."""

    def __init__(self, overlay: Overlay) -> None:
        """Read the directories; an image that is none, or truncated, is an error."""
        self.overlay = overlay
        self.files: dict[str, Extent] = {}
        self._places: dict[Extent, list[int]] = {}
        with open_overlay(overlay) as file:
            descriptors = self._descriptors(file)
            self.volume_id = descriptors[0][40:72].decode("ascii", "replace").strip()
            trees = [_Tree(overlay, file, descriptor) for descriptor in descriptors]
            named = max(trees, key=lambda tree: tree.rank)
            for tree in trees:
                for path, place, extent in tree.listing():
                    self._places.setdefault(extent, []).append(place)
                    if tree is named:
                        self.files.setdefault(path, extent)
        for path, extent in self.files.items():
            if extent.length and extent.offset + extent.length > overlay.size:
                raise ImageError(
                    f"{overlay.base.path} is truncated: file {path!s:.200} ends at byte "
                    f"{extent.offset + extent.length}, the image has {overlay.size} bytes"
                )

    def find(self, path: str) -> Extent | None:
        """The place of a file; also under the short upper-case name that plain ISO 9660 gives it."""
        return self.files.get(path.lower()) or self.files.get(_short(path.lower()))

    def read(self, path: str, limit: int) -> bytes | None:
        """The content of a small file; None when it is not there."""
        extent = self.find(path)
        if extent is None:
            return None
        if extent.length > limit:
            raise ImageError(f"file {path} has {extent.length} bytes, more than the {limit} it may have")
        with open_overlay(self.overlay) as file:
            file.seek(extent.offset)
            return file.read(extent.length)

    def records(self, extent: Extent) -> list[int]:
        """The offsets of every directory record that says where this file lies (plain and Joliet)."""
        return sorted(set(self._places.get(extent, [])))

    def _descriptors(self, file: BinaryIO) -> list[bytes]:
        """The volume descriptors that name a root folder; the primary one is the first."""
        size, path = self.overlay.size, self.overlay.base.path
        if size < _SMALLEST:
            raise ImageError(f"{path} is no ISO image: it has {size} bytes only")
        found: list[bytes] = []
        for number in range(_MOST_DESCRIPTORS):
            file.seek(SYSTEM_AREA + number * SECTOR)
            descriptor = file.read(SECTOR)
            if not found and descriptor[:6] != b"\x01CD001":
                raise ImageError(f"{path} is no ISO image: its first volume descriptor is not there")
            if len(descriptor) < SECTOR or descriptor[1:6] != b"CD001" or descriptor[0] == _END_OF_DESCRIPTORS:
                break
            if descriptor[0] in (_PRIMARY, _SUPPLEMENTARY):
                found.append(descriptor)
        else:
            raise ImageError(f"{path} has more than {_MOST_DESCRIPTORS} volume descriptors")
        blocks, block = struct.unpack_from("<I", found[0], 80)[0], struct.unpack_from("<H", found[0], 128)[0]
        if block != SECTOR:
            raise ImageError(f"{path} has blocks of {block} bytes instead of {SECTOR}")
        if blocks * SECTOR > size:
            raise ImageError(f"{path} is truncated: it has {size} bytes and says that it has {blocks * SECTOR}")
        return found


class _Tree:
    """The folders below one volume descriptor."""

    def __init__(self, overlay: Overlay, file: BinaryIO, descriptor: bytes) -> None:
        self._overlay, self._file = overlay, file
        self._joliet = descriptor[0] == _SUPPLEMENTARY and descriptor[88:91] in _JOLIET
        self._root = _extent(descriptor[_ROOT:])
        self._skipped = self._announced() if descriptor[0] == _PRIMARY else None
        #: whose names are taken: as Linux does, those of Rock Ridge, then those of Joliet
        self.rank = (self._skipped is not None, self._joliet, descriptor[0] == _PRIMARY)

    def listing(self) -> Iterator[tuple[str, int, Extent]]:
        """Every file with the place of its record; a file that lies in one piece after the other is one file.

        Folders that are in several others, each of them in several others, would take for ever to walk: all that is
        read is counted.
        """
        waiting, seen, total = [("", self._root)], 0, 0
        while waiting:
            folder, extent = waiting.pop()
            total, seen = total + extent.length, seen + 1
            if total > _MOST_BYTES:
                raise ImageError(f"the folders of the ISO image have more than {_MOST_BYTES} bytes")
            begun: tuple[str, int, Extent] | None = None
            for record in self._records(folder, extent):
                seen += 1
                if seen > _MOST_FILES:
                    raise ImageError(f"the ISO image has more than {_MOST_FILES} files")
                ridge = self._rock_ridge(record)
                if ridge.link or ridge.moved:
                    continue
                path = f"{folder}/{self._name(record, ridge)}"
                if len(path) > _LONGEST_PATH:
                    raise ImageError(f"the ISO image has a path of more than {_LONGEST_PATH} characters")
                if ridge.child is not None:
                    waiting.append((path, self._itself(ridge.child)))
                elif record.flags & _IS_FOLDER:
                    waiting.append((path, record.extent))
                else:
                    begun = _joined(begun, (path, record.place, record.extent))
                    if not record.flags & _GOES_ON:
                        yield begun
                        begun = None

    def _records(self, folder: str, extent: Extent) -> Iterator[_Record]:
        """The records of a folder but for the first two, which are itself and its parent."""
        self._file.seek(extent.offset)
        data = self._file.read(extent.length)
        if len(data) != extent.length:
            raise ImageError(
                f"{self._overlay.base.path} is truncated: folder {folder or '/'!s:.200} ends at byte "
                f"{extent.offset + extent.length}, the image has {self._overlay.size} bytes"
            )
        at = number = 0
        while at < len(data):
            length = data[at]
            if not length:  # records do not cross sectors: the rest of this one is empty
                at = (at // SECTOR + 1) * SECTOR
                continue
            name = _HEAD + data[at + 32] if at + 32 < len(data) else length + 1
            if name > length or at % SECTOR + length > SECTOR or at + length > len(data):
                raise ImageError(
                    f"{self._overlay.base.path} is damaged: a record of folder {folder or '/'!s:.200} is cut off"
                )
            record = data[at : at + length]
            if number > 1 and record[_HEAD:name] not in (b"\0", b"\1"):
                system = record[name + name % 2 :]  # fields begin at an even byte
                yield _Record(extent.offset + at, record[_HEAD:name], _extent(record), record[25], system)
            number += 1
            at += length

    def _itself(self, sector: int) -> Extent:
        """A folder of which only the sector is known: its first record is its own."""
        self._file.seek(sector * SECTOR)
        record = self._file.read(_HEAD)
        if len(record) < _HEAD:
            raise ImageError(f"{self._overlay.base.path} is truncated: a folder lies behind its end")
        return Extent(sector * SECTOR, _extent(record).length)

    def _announced(self) -> int | None:
        """How many bytes are in front of Rock Ridge's fields, when the root says that there are any."""
        self._file.seek(self._root.offset)
        record = self._file.read(255)
        if len(record) < _HEAD + 1 or record[0] < _HEAD + 1:
            return None
        start = record[_HEAD + record[32] + (_HEAD + record[32]) % 2 : record[0]]
        return start[6] if len(start) >= 7 and start[:2] == b"SP" and start[4:6] == b"\xbe\xef" else None

    def _rock_ridge(self, record: _Record) -> _RockRidge:
        found = _RockRidge()
        if self._skipped is None:
            return found
        area: bytes | None = record.system[self._skipped :]
        for _number in range(_MOST_CONTINUED):
            area = self._fields(area, found) if area else None
            if area is None:
                return found
        raise ImageError(f"{self._overlay.base.path} is damaged: the fields of a record do not end")

    def _fields(self, area: bytes, found: _RockRidge) -> bytes | None:
        """Take what counts here from the fields of an area; where the rest is, when there is one."""
        rest: bytes | None = None
        while len(area) >= 4 and area[2] >= 4:
            kind, value = area[:2], area[4 : area[2]]
            if kind == b"NM" and value and not value[0] & _NO_NAME:
                found.name += value[1:]
            elif kind == b"SL":
                found.link = True
            elif kind == b"RE":
                found.moved = True
            elif kind == b"CL" and len(value) >= 4:
                found.child = struct.unpack_from("<I", value)[0]
            elif kind == b"CE" and len(value) >= 20:
                sector, offset, length = struct.unpack("<I4xI4xI", value[:20])
                self._file.seek(sector * SECTOR + offset)
                rest = self._file.read(min(length, SECTOR))
            elif kind == b"ST":
                break
            area = area[area[2] :]
        return rest

    def _name(self, record: _Record, ridge: _RockRidge) -> str:
        if ridge.name:
            return ridge.name.decode("utf-8", "replace").lower()
        name = record.name.decode("utf-16-be" if self._joliet else "latin-1", "replace")
        name = name.partition(";")[0].lower()
        return name if self._joliet else name.rstrip(".")


def _extent(record: bytes) -> Extent:
    sector, length = struct.unpack_from("<I4xI", record, 2)
    return Extent(sector * SECTOR, length)


def _joined(begun: tuple[str, int, Extent] | None, more: tuple[str, int, Extent]) -> tuple[str, int, Extent]:
    """A file of which the records name one piece after the other."""
    if begun is None:
        return more
    path, place, extent = begun
    if more[0] != path or more[2].offset != extent.offset + extent.length:
        raise ImageError(f"the pieces of file {path!s:.200} do not lie one after the other in the ISO image")
    return path, place, Extent(extent.offset, extent.length + more[2].length)


def _short(path: str) -> str:
    """A path as ISO 9660 level 1 would have it: names of 8 and 3 characters."""
    parts = []
    for part in path.split("/"):
        stem, dot, suffix = part.rpartition(".")
        parts.append(f"{stem[:8]}.{suffix[:3]}" if dot else part[:8])
    return "/".join(parts)
