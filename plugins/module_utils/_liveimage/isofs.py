# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The file system of an ISO image: where its files lie, whichever names it gives them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from .errors import ImageError
from .overlay import Overlay
from .reading import open_overlay

try:
    import pycdlib
    from pycdlib.pycdlibexception import PyCdlibException

    HAS_PYCDLIB = True
except ImportError:
    HAS_PYCDLIB = False

SECTOR = 2048
SYSTEM_AREA = 16 * SECTOR
_SMALLEST = SYSTEM_AREA + 2 * SECTOR
_MOST_FILES = 10_000
_MOST_BYTES = 16 * 1024 * 1024  # of all folders
_MOST_DESCRIPTORS = 64
_WITH_ROOT, _END_OF_DESCRIPTORS = (1, 2), 255  # types of volume descriptors


@dataclass(frozen=True)
class Extent:
    """Where a file lies in the image, in bytes."""

    offset: int
    length: int


class IsoFiles:
    """The files of an image; paths are as on Linux, with their long names in lower case."""

    def __init__(self, overlay: Overlay) -> None:
        """Read the directories; an image that is none, or truncated, is an error."""
        if not HAS_PYCDLIB:
            raise ImageError("the Python library pycdlib is missing on this machine; install it: pip install pycdlib")
        self.overlay = overlay
        self.files: dict[str, Extent] = {}
        self.volume_id = ""
        self._folders: list[tuple[int, int]] = []
        self._check_size()
        self._check_tree()
        iso = pycdlib.PyCdlib()
        with open_overlay(overlay) as file:
            try:
                iso.open_fp(file)
                self.volume_id = iso.pvd.volume_identifier.decode("ascii", "replace").strip()
                for path, extent in _listing(iso):
                    self.files[path] = extent
                self._folders = list(_directories(iso))
            # what pycdlib raises on images that are damaged in ways it does not look for
            except (PyCdlibException, struct.error, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
                    RecursionError, OSError) as error:  # fmt: skip
                if isinstance(error, ImageError):
                    raise
                raise ImageError("%s is no readable ISO image: %s" % (overlay.base.path, error)) from error
        for path, extent in self.files.items():
            if extent.offset + extent.length > overlay.size:
                raise ImageError(
                    "%s is truncated: file %.200s ends at byte %d, the image has %d bytes"
                    % (overlay.base.path, path, extent.offset + extent.length, overlay.size)
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
            raise ImageError("file %s has %d bytes, more than the %d it may have" % (path, extent.length, limit))
        with open_overlay(self.overlay) as file:
            file.seek(extent.offset)
            return file.read(extent.length)

    def records(self, extent: Extent) -> list[int]:
        """The offsets of every directory record that says where this file lies (plain and Joliet)."""
        wanted = struct.pack("<I", extent.offset // SECTOR), struct.pack("<I", extent.length)
        found = set()
        with open_overlay(self.overlay) as file:
            for offset, length in self._folders:
                file.seek(offset)
                for place, record in _records(file.read(length)):
                    if record[2:6] == wanted[0] and record[10:14] == wanted[1] and not record[25] & 2:
                        found.add(offset + place)
        return sorted(found)

    def _check_tree(self) -> None:
        """Folders that are in several others, each of them in several others, would take for ever to walk."""
        with open_overlay(self.overlay) as file:
            for sector in range(_MOST_DESCRIPTORS):
                file.seek(SYSTEM_AREA + sector * SECTOR)
                descriptor = file.read(SECTOR)
                if descriptor[1:6] != b"CD001" or descriptor[0] == _END_OF_DESCRIPTORS:
                    return
                if descriptor[0] in _WITH_ROOT:
                    self._check_folders(file, struct.unpack("<I4xI", descriptor[158:170]))
        raise ImageError("%s has more than %d volume descriptors" % (self.overlay.base.path, _MOST_DESCRIPTORS))

    def _check_folders(self, file: BinaryIO, root: tuple[int, ...]) -> None:
        waiting, seen, total = [root], 0, 0
        while waiting:
            sector, length = waiting.pop()
            total += length
            if total > _MOST_BYTES:
                raise ImageError("the folders of the ISO image have more than %d bytes" % _MOST_BYTES)
            file.seek(sector * SECTOR)
            for _place, record in _records(file.read(length)):
                seen += 1
                if seen > _MOST_FILES:
                    raise ImageError("the ISO image has more than %d files" % _MOST_FILES)
                if record[25] & 2 and record[32:34] not in (b"\x01\x00", b"\x01\x01"):
                    waiting.append(struct.unpack("<I4xI", record[2:14]))

    def _check_size(self) -> None:
        size = self.overlay.size
        if size < _SMALLEST:
            raise ImageError("%s is no ISO image: it has %d bytes only" % (self.overlay.base.path, size))
        with open_overlay(self.overlay) as file:
            file.seek(SYSTEM_AREA)
            descriptor = file.read(SECTOR)
        if descriptor[:6] != b"\x01CD001":
            raise ImageError("%s is no ISO image: its first volume descriptor is not there" % self.overlay.base.path)
        blocks, block = struct.unpack("<I", descriptor[80:84])[0], struct.unpack("<H", descriptor[128:130])[0]
        if block != SECTOR:
            raise ImageError("%s has blocks of %d bytes instead of %d" % (self.overlay.base.path, block, SECTOR))
        if blocks * SECTOR > size:
            raise ImageError(
                "%s is truncated: it has %d bytes and says that it has %d"
                % (self.overlay.base.path, size, blocks * SECTOR)
            )


def _short(path: str) -> str:
    """A path as ISO 9660 level 1 would have it: names of 8 and 3 characters."""
    parts = []
    for part in path.split("/"):
        stem, dot, suffix = part.rpartition(".")
        parts.append("%s.%s" % (stem[:8], suffix[:3]) if dot else part[:8])
    return "/".join(parts)


def _listing(iso: Any) -> Iterator[tuple[str, Extent]]:
    kinds = (
        {"rr_path": "/"} if iso.has_rock_ridge() else {"joliet_path": "/"} if iso.has_joliet() else {"iso_path": "/"}
    )
    (kind,) = kinds
    count = 0
    for folder, _folders, names in iso.walk(**kinds):
        for name in names:
            count += 1
            if count > _MOST_FILES:
                raise ImageError("the ISO image has more than %d files" % _MOST_FILES)
            path = "%s/%s" % (folder.rstrip("/"), name)
            record = iso.get_record(**{kind: path})
            if record.is_file() and not (record.rock_ridge and record.rock_ridge.is_symlink()):
                yield (
                    path.partition(";")[0].lower(),
                    Extent(record.extent_location() * SECTOR, record.get_data_length()),
                )


def _directories(iso: Any) -> Iterator[tuple[int, int]]:
    trees = [{"iso_path": "/"}, *([{"joliet_path": "/"}] if iso.has_joliet() else [])]
    for tree in trees:
        (kind,) = tree
        for folder, _folders, _names in iso.walk(**tree):
            record = iso.get_record(**{kind: folder})
            yield record.extent_location() * SECTOR, record.get_data_length()


def _records(directory: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(directory):
        length = directory[at]
        if length < 34:  # records do not cross sectors: the rest of this one is empty
            at = (at // SECTOR + 1) * SECTOR
            continue
        if at + length > len(directory):
            return
        yield at, directory[at : at + length]
        at += length
