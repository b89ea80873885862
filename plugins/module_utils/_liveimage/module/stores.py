# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Where products go: image files, or descriptors for the image server. Both are compared before they are changed.

Beside each image file lies a record of what was written and of what the file was like then. While device, inode,
size, both times of change (the ctime cannot be set back) and the wanted content are those of the record, the file is
ours and unchanged. In all other cases every byte is compared.
"""

from __future__ import annotations

import json
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..._common.private_files import replacing
from ..._common.text import json_value
from .. import descriptor
from ..base_file import glance
from ..errors import ImageError
from ..overlay import BaseRange, Bytes, Overlay, whole
from ..overlay_io import materialise
from .products import Product

_VERSION = 1
_BLOCK = 1024 * 1024
_LARGEST_RECORD = 64 * 1024


@dataclass(frozen=True)
class Owned:
    """Who may read what is written; ``owner`` sets user and group of a path, and returns whether it changed them."""

    permissions: int = 0o600
    owner: Callable[[str, bool], bool] = lambda path, check: False


@dataclass(frozen=True)
class Found:
    """A file as it was found: its content is the wanted one, its permissions are; ``known``: by its record alone."""

    there: bool
    same: bool
    permissions: bool = True
    known: bool = False


def record_path(path: str) -> str:
    """Where the record of a file lies."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.kubenode.json")


def compare_file(path: str, overlay: Overlay, permissions: int, *, full: bool = False) -> Found:
    """Compare a file with the image it should be; ``full`` reads it also when its record says that it is unchanged."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Found(False, False)
    except OSError as error:
        raise ImageError(f"target {path} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ImageError(f"target {path} is a folder, a link or a device; move it away")
    right = stat.S_IMODE(found.st_mode) == permissions
    if found.st_size != overlay.size:
        return Found(True, False, right)
    record = read_record(path)
    if not full and record.get("etag") == overlay.etag() and record.get("file") == _file_stamp(found):
        return Found(True, True, right, known=True)
    return Found(True, same_bytes(path, overlay), right)


def same_bytes(path: str, overlay: Overlay) -> bool:
    """Whether a file has exactly the bytes of an image of the same size."""
    try:
        with open(path, "rb", buffering=0) as file, open(overlay.base.path, "rb", buffering=0) as base:
            at = 0
            for segment in overlay.segments:
                for start in range(0, segment.length, _BLOCK):
                    length = min(_BLOCK, segment.length - start)
                    if isinstance(segment, BaseRange):
                        wanted = os.pread(base.fileno(), length, segment.offset + start)
                    elif isinstance(segment, Bytes):
                        wanted = segment.data[start : start + length]
                    else:
                        wanted = bytes(length)
                    if os.pread(file.fileno(), length, at + start) != wanted:
                        return False
                at += segment.length
    except OSError as error:
        raise ImageError(f"target {path} cannot be compared: {error.strerror}") from error
    return True


def write_file(path: str, overlay: Overlay, owned: Owned, about: Mapping[str, Any], *, content: bool = True) -> None:
    """Write an image (or only its permissions and record, when its content is there already) and remember it."""
    if content:
        materialise(overlay, path, owned.permissions)
    try:
        if stat.S_IMODE(os.lstat(path).st_mode) != owned.permissions:
            os.chmod(path, owned.permissions)
        owned.owner(path, False)
        stamp = _file_stamp(os.lstat(path))
    except OSError as error:
        raise ImageError(f"target {path} cannot be given its permissions: {error.strerror}") from error
    record = {"kubenode_record": _VERSION, "etag": overlay.etag(), "file": stamp, **about}
    write_text(record_path(path), json.dumps(record, sort_keys=True) + "\n", Owned())


def read_record(path: str) -> Mapping[str, Any]:
    """What is remembered of a file; nothing when there is no record, or none that can be read."""
    try:
        with open(record_path(path), encoding="utf-8") as file:
            found = json_value(file.read(_LARGEST_RECORD))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("kubenode_record") == _VERSION else {}


def write_text(path: str, text: str, owned: Owned) -> None:
    """Write a small file in one step."""
    try:
        with replacing(path) as (file, draft):
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
            owned.owner(draft, False)
            os.chmod(draft, owned.permissions)
    except OSError as error:
        raise ImageError(f"{path} cannot be written: {error.strerror}") from error


def remove_file(path: str) -> None:
    """A file and its record are gone."""
    for one in (path, record_path(path)):
        try:
            os.unlink(one)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ImageError(f"{one} cannot be removed: {error.strerror}") from error


def _file_stamp(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


class Store(ABC):
    """A folder of products."""

    def __init__(self, folder: str, owned: Owned, *, full: bool = False) -> None:
        """``full``: content is read even where its record would do."""
        self.folder = folder
        self._owned = owned
        self._full = full

    def check(self) -> None:
        """The folder can be used, or made."""
        place = self.folder if os.path.lexists(self.folder) else os.path.dirname(self.folder)
        if not os.path.isdir(place):
            raise ImageError(f"dest {self.folder}: {place} is not a folder")
        if not os.access(place, os.W_OK | os.X_OK):
            raise ImageError(f"dest {self.folder}: nothing can be written into {place}")

    def make(self) -> None:
        """The folder is there; a new one is its owner's alone."""
        if not os.path.isdir(self.folder):
            try:
                os.mkdir(self.folder, 0o700)
            except OSError as error:
                raise ImageError(f"dest {self.folder} cannot be made: {error.strerror}") from error

    @abstractmethod
    def path(self, name: str) -> str:
        """Where a product of this name lies."""

    @abstractmethod
    def compare(self, product: Product) -> Found:
        """What is there now."""

    @abstractmethod
    def write(self, product: Product, found: Found) -> None:
        """The product is there."""

    @abstractmethod
    def before(self, name: str) -> Overlay | None:
        """The image that is there now, when it can still be read."""

    @abstractmethod
    def is_of(self, name: str, host: str) -> bool:
        """Whether a file was written here for this host."""

    def owner_differs(self, name: str) -> bool:
        """Whether user or group are not the wanted ones."""
        path = self.path(name)
        return os.path.lexists(path) and self._owned.owner(path, True)

    def remove(self, name: str) -> None:
        """The file is gone."""
        remove_file(self.path(name))


class Files(Store):
    """Whole images."""

    def path(self, name: str) -> str:
        """The image."""
        return os.path.join(self.folder, name)

    def compare(self, product: Product) -> Found:
        """By the record beside it, or byte by byte."""
        path = self.path(product.name)
        if os.path.realpath(path) == os.path.realpath(product.overlay.base.path):
            raise ImageError(f"dest: {path} is the base itself and is not written over")
        return compare_file(path, product.overlay, self._owned.permissions, full=self._full)

    def write(self, product: Product, found: Found) -> None:
        """Content, permissions and record, as far as they differ."""
        about = {"host": product.host, "kind": product.kind}
        write_file(self.path(product.name), product.overlay, self._owned, about, content=not found.same)

    def before(self, name: str) -> Overlay | None:
        """The file."""
        return whole(glance(self.path(name))) if os.path.isfile(self.path(name)) else None

    def is_of(self, name: str, host: str) -> bool:
        """By its record."""
        return bool(read_record(self.path(name)).get("host") == host)


class Descriptors(Store):
    """Descriptors; the image server makes images of them."""

    def __init__(self, folder: str, owned: Owned, *, now: Callable[[], float] = time.time) -> None:
        """``now``: what a new descriptor is dated with."""
        super().__init__(folder, owned)
        self._now = now

    def path(self, name: str) -> str:
        """The descriptor."""
        return descriptor.path_of(self.folder, name)

    def compare(self, product: Product) -> Found:
        """A descriptor is small: it is read."""
        path = self.path(product.name)
        data = descriptor.read(path)
        if data is None:
            return Found(False, False)
        same = descriptor.same(data, product.name, product.host, product.overlay)
        right = stat.S_IMODE(os.lstat(path).st_mode) == self._owned.permissions
        return Found(True, same, right, known=True)

    def write(self, product: Product, found: Found) -> None:
        """The whole descriptor; the date of an image that is the same stays."""
        path = self.path(product.name)
        created = int(self._now())
        if found.same:
            before = (descriptor.read(path) or {}).get("created")
            created = before if isinstance(before, int) and before > 0 else created
        text = descriptor.text_of(product.name, product.host, product.overlay, created)
        write_text(path, text, self._owned)

    def before(self, name: str) -> Overlay | None:
        """What it describes, while its base is still the same."""
        data = descriptor.read(self.path(name))
        if data is None:
            return None
        overlay = descriptor.overlay_of(data)
        return overlay if overlay.base.unchanged() else None

    def is_of(self, name: str, host: str) -> bool:
        """By what it says itself."""
        try:
            data = descriptor.read(self.path(name))
        except ImageError:
            return False
        return data is not None and data.get("host") == host
