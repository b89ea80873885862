# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Where products go: image files, or descriptors for the image server. Both can be asked before they are changed."""

from __future__ import annotations

import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..base import glance
from ..errors import ImageError
from ..overlay import Overlay, whole
from . import descriptors, files
from .files import Found, Owned
from .products import Product


class Store(ABC):
    """A folder of products."""

    def __init__(self, folder: str, owned: Owned, *, full: bool = False) -> None:
        """``full``: content is read whatever is remembered of it."""
        self.folder = folder
        self._owned = owned
        self._full = full

    def check(self) -> None:
        """The folder can be used, or made."""
        place = self.folder if os.path.lexists(self.folder) else os.path.dirname(self.folder)
        if not os.path.isdir(place):
            raise ImageError("dest %s: %s is not a folder" % (self.folder, place))
        if not os.access(place, os.W_OK | os.X_OK):
            raise ImageError("dest %s: nothing can be written into %s" % (self.folder, place))

    def make(self) -> None:
        """The folder is there; a new one is its owner's alone."""
        if not os.path.isdir(self.folder):
            try:
                os.mkdir(self.folder, 0o700)
            except OSError as error:
                raise ImageError("dest %s cannot be made: %s" % (self.folder, error.strerror)) from error

    @abstractmethod
    def path(self, name: str) -> str:
        """Where a product of this name lies."""

    @abstractmethod
    def look(self, product: Product) -> Found:
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
        files.remove(self.path(name))


class Files(Store):
    """Whole images."""

    def path(self, name: str) -> str:
        """The image."""
        return os.path.join(self.folder, name)

    def look(self, product: Product) -> Found:
        """By the record beside it, or byte by byte."""
        path = self.path(product.name)
        if os.path.realpath(path) == os.path.realpath(product.overlay.base.path):
            raise ImageError("dest: %s is the base itself and is not written over" % path)
        return files.look(path, product.overlay, self._owned.permissions, full=self._full)

    def write(self, product: Product, found: Found) -> None:
        """Content, permissions and record, as far as they differ."""
        told = {"host": product.host, "kind": product.kind}
        files.write(self.path(product.name), product.overlay, self._owned, told, content=not found.same)

    def before(self, name: str) -> Overlay | None:
        """The file."""
        return whole(glance(self.path(name))) if os.path.isfile(self.path(name)) else None

    def is_of(self, name: str, host: str) -> bool:
        """By its record."""
        return bool(files.read_record(self.path(name)).get("host") == host)


class Descriptors(Store):
    """Descriptors; the image server makes images of them."""

    def __init__(self, folder: str, owned: Owned, *, now: Callable[[], float] = time.time) -> None:
        """``now``: what a new descriptor is dated with."""
        super().__init__(folder, owned)
        self._now = now

    def path(self, name: str) -> str:
        """The descriptor."""
        return descriptors.path_of(self.folder, name)

    def look(self, product: Product) -> Found:
        """A descriptor is small: it is read."""
        path = self.path(product.name)
        data = descriptors.read(path)
        if data is None:
            return Found(False, False)
        same = descriptors.same(data, product.name, product.host, product.overlay)
        right = stat.S_IMODE(os.lstat(path).st_mode) == self._owned.permissions
        return Found(True, same, right, known=True)

    def write(self, product: Product, found: Found) -> None:
        """The whole descriptor; the date of an image that is the same stays."""
        path = self.path(product.name)
        created = int(self._now())
        if found.same:
            before = (descriptors.read(path) or {}).get("created")
            created = before if isinstance(before, int) and before > 0 else created
        text = descriptors.text_of(product.name, product.host, product.overlay, created)
        files.write_text(path, text, self._owned)

    def before(self, name: str) -> Overlay | None:
        """What it describes, while its base is still the same."""
        data = descriptors.read(self.path(name))
        if data is None:
            return None
        overlay = descriptors.overlay_of(data)
        return overlay if overlay.base.unchanged() else None

    def is_of(self, name: str, host: str) -> bool:
        """By what it says itself."""
        try:
            data = descriptors.read(self.path(name))
        except ImageError:
            return False
        return data is not None and data.get("host") == host
