# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Writes files whole or not at all, private from their first moment; removes trees, and nothing else.

Intents, claims, locks and quarantine are such files. A tree is removed never through a link, never out of the mount
that it lies in. Every folder is opened from its parent and its mount is checked. So a process that meanwhile replaces
a folder by a link, or mounts something over it, cannot make us remove other files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from . import mounts


@contextlib.contextmanager
def replacing(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """A draft (0600) beside a file, and the draft's path; it takes the file's place when the block ends well.

    An OSError of the block names the file.
    """
    folder, name = os.path.split(os.path.abspath(path))
    handle, draft = tempfile.mkstemp(prefix=f".{name[:64]}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, draft
        os.replace(draft, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)  # on a full disk it would keep the room that others lack
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # A write to an open file does not say which one it is.
            error.filename = path
        raise


def is_full(error: BaseException) -> bool:
    """Whether a disk had no room for a file."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def unwritable(path: object, error: OSError, folder: object = "") -> str:
    """A sentence about a file that this controller cannot keep, with the way out; ``folder``: where it lies."""
    folder = folder or os.path.dirname(str(path))
    way = f"make room on the disk of {folder}" if is_full(error) else f"make {folder} writable"
    return f"{path} cannot be written ({error.strerror or error}); {way}, or let kubenode_dir name another folder"


def write_json(path: str, content: Any, sort_keys: bool = False, durable: bool = True) -> None:
    """Write a file, whole or not at all; its folder is made. Raises OSError.

    ``durable``: only return when the file would survive a power cut.
    """
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    with replacing(path) as (file, _draft):
        file.write((json.dumps(content, indent=1, sort_keys=sort_keys) + "\n").encode("ascii"))
        if durable:
            file.flush()
            os.fsync(file.fileno())


def lock(fd: int, seconds: float) -> bool:
    """Take the lock of an open file, which ends when it is closed; False when another one holds it for so long.

    Raises OSError: at once, but after that time when the kernel had no memory for a lock.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            held = isinstance(error, BlockingIOError)
            late = time.monotonic() > deadline
            if held and late:
                return False
            if not held and (late or error.errno != errno.ENOLCK):
                raise
            time.sleep(0.1)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: deeper than any honest tree; each level holds a file open
_DEEPEST = 200


def remove(path: str) -> list[str]:
    """Remove a file, a link or a folder with all that is in it; nothing happens when it is not there.

    Returns the mount points that were met. They stay, with all that is in them and the folders above them.
    """
    folder, name = os.path.split(path.rstrip("/"))
    left: list[str] = []
    try:
        parent = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return left
    try:
        _remove(_Place(parent, mounts.id_of(parent), folder), name, left, 0)
    finally:
        os.close(parent)
    return left


def empty(path: str) -> list[str]:
    """Remove all that is in a folder, which may be a mount point itself but no link; returns as `remove` does."""
    left: list[str] = []
    fd = os.open(path, _FOLDER)
    try:
        _empty(_Place(fd, mounts.id_of(fd), path.rstrip("/")), left, 0)
    finally:
        os.close(fd)
    return left


class _Place(NamedTuple):
    """An open folder, the id of its mount, and its path for people."""

    fd: int
    mount: int
    path: str


def _remove(place: _Place, name: str, left: list[str], depth: int) -> bool:
    """Remove one entry; whether it is gone."""
    shown = f"{place.path}/{name}"
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=place.fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=place.fd)
            return True
        fd = os.open(name, _FOLDER, dir_fd=place.fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise OSError(error.errno, error.strerror, shown) from None
        left.append(shown)  # a file that another one is mounted over
        return False
    try:
        mount = mounts.id_of(fd)
        if mount != place.mount:
            left.append(shown)
            return False
        if depth >= _DEEPEST:
            raise OSError(errno.ELOOP, f"more than {_DEEPEST} folders in each other", shown)
        if not _empty(_Place(fd, mount, shown), left, depth + 1):
            return False
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=place.fd)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, shown) from None
    return True


def _empty(place: _Place, left: list[str], depth: int) -> bool:
    """Remove every entry; whether all of them are gone."""
    gone = [_remove(place, name, left, depth) for name in os.listdir(place.fd)]
    return all(gone)
