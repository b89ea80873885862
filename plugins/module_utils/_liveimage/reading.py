# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Overlays as readable files."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

from .errors import ImageError
from .overlay import BaseRange, Bytes, Overlay, Segment


class OverlayReader(io.RawIOBase):
    """A read-only, seekable file of an overlay's bytes; it keeps a base of its own open."""

    def __init__(self, overlay: Overlay) -> None:
        """Open the base."""
        super().__init__()
        self._overlay = overlay
        self._at = 0
        self._base = open(overlay.base.path, "rb", buffering=0)  # noqa: SIM115 - closed with this object

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The next byte's offset."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._overlay.size}[whence]
        if origin + offset < 0:
            raise OSError("seek before the beginning")
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read what fits, 0 at the end."""
        stop = min(self._overlay.size, self._at + len(buffer))
        if self._at >= stop:
            return 0
        filled = 0
        for segment in self._overlay.slice(self._at, stop):
            buffer[filled : filled + segment.length] = self._content(segment)
            filled += segment.length
        self._at += filled
        return filled

    def _content(self, segment: Segment) -> bytes:
        if isinstance(segment, Bytes):
            return segment.data
        if not isinstance(segment, BaseRange):
            return bytes(segment.length)
        data = os.pread(self._base.fileno(), segment.length, segment.offset)
        if len(data) != segment.length:
            raise ImageError("base %s became shorter while it was read" % self._overlay.base.path)
        return data

    def close(self) -> None:
        """Close the base, too."""
        if not self.closed:
            self._base.close()
        super().close()


def open_overlay(overlay: Overlay) -> BinaryIO:
    """The image as a buffered file."""
    return io.BufferedReader(OverlayReader(overlay), 64 * 1024)  # type: ignore[type-var]


def read(overlay: Overlay, start: int, length: int) -> bytes:
    """Bytes of the image; fewer at its end."""
    with open_overlay(overlay) as file:
        file.seek(start)
        return file.read(length)
