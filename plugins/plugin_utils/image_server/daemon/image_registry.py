# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is served: public paths and the overlays behind them, changed while readers read."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.base_file import Base
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.errors import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import Overlay

from . import requests

CONTENT_TYPES = {".iso": "application/x-iso9660-image", ".ipxe": "text/plain; charset=utf-8"}
OTHER = "application/octet-stream"


class BaseFile:
    """An open base: the file that was read, even when another one has taken its name since."""

    __slots__ = ("_checked", "_good", "base", "fd")

    def __init__(self, base: Base) -> None:
        """Open it; ImageError for one that was changed since it was read."""
        self.base = base
        self.fd = os.open(base.path, os.O_RDONLY | os.O_CLOEXEC)
        self._checked, self._good = 0.0, True
        if not self.intact(0.0):
            os.close(self.fd)
            raise ImageError(f"base {base.path} was changed since it was read; read it again")

    def intact(self, now: float) -> bool:
        """Whether it was not written to; the kernel is asked at most every 100 ms."""
        if now - self._checked >= 0.1 or not now:
            found = os.fstat(self.fd)
            self._checked = now
            self._good = found.st_mtime_ns == self.base.mtime_ns and found.st_size in (0, self.base.size)
        return self._good

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.fd)


@dataclass(frozen=True)
class Image:
    """One image as readers see it."""

    __slots__ = ("etag", "file", "head", "host", "modified", "overlay")
    host: str  # whose image it is, for logs and metrics
    overlay: Overlay
    file: BaseFile
    etag: str
    modified: int
    head: bytes  # the header lines that are the same in every answer


@dataclass
class Registry:
    """Public path → image. Writers replace, readers keep what they have begun with."""

    _images: dict[str, Image] = field(default_factory=dict)
    _files: dict[Base, BaseFile] = field(default_factory=dict)
    _uses: dict[Base, int] = field(default_factory=dict)  # how many images are over a base
    _lock: threading.Lock = field(default_factory=threading.Lock)
    changes: int = 0  # how often what is served became something else

    def put(self, path: str, host: str, overlay: Overlay, modified: float) -> Image:
        """Publish an image; ``modified`` is when its newest input was written (seconds since 1970).

        The same content keeps its date; other content gets a later one than what it replaces.
        """
        etag = overlay.etag()
        with self._lock:
            old = self._images.get(path)
            if old is not None and old.etag == etag and old.file.intact(time.monotonic()):
                return old
            moment = int(modified)
            if old is not None and old.etag != etag:
                moment = max(moment, old.modified + 1)
            file = self._files.get(overlay.base)
            if file is None or not file.intact(0.0):
                file = self._files[overlay.base] = BaseFile(overlay.base)
            image = Image(host, overlay, file, etag, moment, _head(path, etag, moment))
            self._uses[overlay.base] = self._uses.get(overlay.base, 0) + 1
            self._images[path] = image
            self.changes += 1
            self._unused(old)
            return image

    def remove(self, path: str) -> None:
        """Serve it no longer; readers that have begun go on to the end."""
        with self._lock:
            old = self._images.pop(path, None)
            self.changes += old is not None
            self._unused(old)

    def get(self, path: str) -> Image | None:
        """The image behind a path."""
        return self._images.get(path)

    def __len__(self) -> int:
        return len(self._images)

    def items(self) -> Iterator[tuple[str, Image]]:
        """Every path and its image, as they are now."""
        return iter(list(self._images.items()))

    def _unused(self, image: Image | None) -> None:
        """An image went away; a base that no other is over is closed when its last reader is done."""
        if image is None:
            return
        base = image.overlay.base
        self._uses[base] -= 1
        if not self._uses[base]:
            del self._uses[base], self._files[base]


def _head(path: str, etag: str, modified: int) -> bytes:
    suffix = os.path.splitext(path)[1]
    lines = (
        ("Accept-Ranges", "bytes"),
        ("ETag", f'"{etag}"'),
        ("Last-Modified", requests.http_date(modified)),
        ("Cache-Control", "private, no-transform"),
        ("X-Content-Type-Options", "nosniff"),
    )
    text = "".join("%s: %s\r\n" % line for line in lines)
    return text.encode("ascii") + b"Content-Type: " + CONTENT_TYPES.get(suffix, OTHER).encode("ascii") + b"\r\n"
