# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Overlays as readable files, and written as files of their own.

Where the file system can, a written file shares its blocks with the base; elsewhere the kernel copies them.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from typing import BinaryIO

from .._common.private_files import replacing
from .errors import ImageError
from .overlay import BaseRange, Bytes, Overlay, Segment

_FICLONERANGE = 0x4020940D  # _IOW(0x94, 13, struct file_clone_range)
_CHUNK = 64 * 1024 * 1024
_BUFFER = 1024 * 1024
# The kernel or a file system cannot do it this way; copying by hand can.
_CANNOT = (
    errno.EXDEV,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EBADF,
    errno.EPERM,
    errno.ETXTBSY,
)
_BLOCK = 4096  # blocks are shared whole, at the same alignment


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
            raise ImageError(f"base {self._overlay.base.path} became shorter while it was read")
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


def materialise(overlay: Overlay, target: str, mode: int = 0o644) -> None:
    """Write the image to ``target`` in one step: it is whole and on disk, or as it was."""
    try:
        with replacing(target) as (file, _draft):
            _write(overlay, file.fileno())
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            if not overlay.base.unchanged():
                raise ImageError(f"base {overlay.base.path} was changed while it was copied; run it again")
    except OSError as error:
        raise ImageError(f"target {target} cannot be written: {error.strerror or error}") from error


def _write(overlay: Overlay, target: int) -> None:
    source = os.open(overlay.base.path, os.O_RDONLY)
    try:
        at = 0
        for segment in overlay.segments:
            if isinstance(segment, BaseRange):
                _share_or_copy(source, target, segment.offset, at, segment.length)
            elif isinstance(segment, Bytes):
                _write_all(target, segment.data, at)
            at += segment.length  # zeros: a hole
        os.ftruncate(target, at)
    finally:
        os.close(source)


def _share_or_copy(source: int, target: int, offset: int, at: int, length: int) -> None:
    head = -at % _BLOCK
    middle = (length - head) // _BLOCK * _BLOCK
    if (offset - at) % _BLOCK == 0 and middle > 0 and _share(source, target, offset + head, at + head, middle):
        _copy(source, target, offset, at, head)
        done = head + middle
        _copy(source, target, offset + done, at + done, length - done)
    else:
        _copy(source, target, offset, at, length)


def _copy(source: int, target: int, offset: int, at: int, length: int) -> None:
    copied = 0
    by_kernel = hasattr(os, "copy_file_range")
    while copied < length:
        if by_kernel:
            try:
                done = os.copy_file_range(source, target, min(_CHUNK, length - copied), offset + copied, at + copied)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                by_kernel = False
                continue
        else:
            data = os.pread(source, min(_BUFFER, length - copied), offset + copied)
            _write_all(target, data, at + copied)
            done = len(data)
        if not done:
            raise ImageError("the base became shorter while it was copied; run it again")
        copied += done


def _share(source: int, target: int, offset: int, at: int, length: int) -> bool:
    """Share the blocks (reflink)."""
    request = b"".join(value.to_bytes(8, "little") for value in (source, offset, length, at))
    try:
        fcntl.ioctl(target, _FICLONERANGE, request)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def _write_all(target: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(target, view, at)
        view, at = view[done:], at + done
