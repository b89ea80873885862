# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Image files on disk: whether one is what it should be, without reading a gigabyte each time.

Beside each file lies a record of what was written and of what the file was like then. While device, inode, size, both
times of change (nobody can set the ctime back) and the wanted content are those of the record, the file is ours and
unchanged. In all other cases every byte is compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ImageError
from ..overlay import BaseRange, Bytes, Overlay
from ..writing import materialise

_VERSION = 1
_BLOCK = 1024 * 1024
_LARGEST_RECORD = 64 * 1024


@dataclass(frozen=True)
class Owned:
    """Who may read what is written; ``owner`` sets user and group of a path and tells whether that changes anything."""

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
    return os.path.join(folder, ".%s.kubenode.json" % name)


def look(path: str, overlay: Overlay, permissions: int, *, full: bool = False) -> Found:
    """Compare a file with the image it should be; ``full`` reads it whatever its record says."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Found(False, False)
    except OSError as error:
        raise ImageError("target %s cannot be looked at: %s" % (path, error.strerror)) from error
    if not stat.S_ISREG(found.st_mode):
        raise ImageError("target %s is a folder, a link or a device; move it away" % path)
    right = stat.S_IMODE(found.st_mode) == permissions
    if found.st_size != overlay.size:
        return Found(True, False, right)
    record = read_record(path)
    if not full and record.get("etag") == overlay.etag() and record.get("file") == _stamp(found):
        return Found(True, True, right, known=True)
    return Found(True, equal(path, overlay), right)


def equal(path: str, overlay: Overlay) -> bool:
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
        raise ImageError("target %s cannot be compared: %s" % (path, error.strerror)) from error
    return True


def write(path: str, overlay: Overlay, owned: Owned, told: Mapping[str, Any], *, content: bool = True) -> None:
    """Write an image (or only its permissions and record, when its content is there already) and remember it."""
    if content:
        materialise(overlay, path, owned.permissions)
    try:
        if stat.S_IMODE(os.lstat(path).st_mode) != owned.permissions:
            os.chmod(path, owned.permissions)
        owned.owner(path, False)
        stamp = _stamp(os.lstat(path))
    except OSError as error:
        raise ImageError("target %s cannot be given its permissions: %s" % (path, error.strerror)) from error
    record = {"kubenode_record": _VERSION, "etag": overlay.etag(), "file": stamp, **told}
    write_text(record_path(path), json.dumps(record, sort_keys=True) + "\n", Owned())


def read_record(path: str) -> Mapping[str, Any]:
    """What is remembered of a file; nothing when there is no record, or none that can be read."""
    try:
        with open(record_path(path), encoding="utf-8") as file:
            found = json.loads(file.read(_LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("kubenode_record") == _VERSION else {}


def write_text(path: str, text: str, owned: Owned) -> None:
    """Write a small file in one step."""
    folder, name = os.path.split(os.path.abspath(path))
    scratch = None
    try:
        handle, scratch = tempfile.mkstemp(prefix=".%s." % name[:64], dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        owned.owner(scratch, False)
        os.chmod(scratch, owned.permissions)
        os.replace(scratch, path)
    except OSError as error:
        raise ImageError("%s cannot be written: %s" % (path, error.strerror)) from error
    finally:
        if scratch is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)


def remove(path: str) -> None:
    """A file and its record are gone."""
    for one in (path, record_path(path)):
        try:
            os.unlink(one)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ImageError("%s cannot be removed: %s" % (one, error.strerror)) from error


def _stamp(found: os.stat_result) -> list:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
