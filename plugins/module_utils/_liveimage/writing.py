# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Overlays become files: blocks shared with the base where the file system can, else copied by the kernel."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile

from .errors import ImageError
from .overlay import BaseRange, Bytes, Overlay

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


def materialise(overlay: Overlay, target: str, mode: int = 0o644) -> None:
    """Write the image to ``target`` in one step: it is whole and on disk, or as it was."""
    folder, name = os.path.split(os.path.abspath(target))
    try:
        handle, scratch = tempfile.mkstemp(prefix=".%s." % name[:64], dir=folder)
    except OSError as error:
        raise ImageError("target %s cannot be written: %s" % (target, error.strerror)) from error
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            _write(overlay, file.fileno())
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if not overlay.base.unchanged():
            raise ImageError("base %s was changed while it was copied; run it again" % overlay.base.path)
        os.replace(scratch, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        if isinstance(error, OSError):
            raise ImageError("target %s cannot be written: %s" % (target, error.strerror or error)) from error
        raise


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
