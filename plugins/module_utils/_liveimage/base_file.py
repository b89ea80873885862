# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A base file and its identity: what makes two files the same content, also in different folders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from .._common.safe_files import write_json
from .._common.text import json_value
from .image_error import ImageError, failing

LARGE = 64 * 1024 * 1024  # bytes; the digest of less is computed in no time, and not kept on disk
_BLOCK = 1024 * 1024
_FRESH = 2.0  # seconds after a write within which another one could leave the same times
_KEPT = "base-digests.json"
_MOST_KEPT = 64
_STATE = re.compile(r"[0-9]{1,20}(:-?[0-9]{1,20}){4}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Signature(NamedTuple):
    """Data that change when a file is replaced or written to."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


def signature_of(found: os.stat_result) -> Signature:
    """The signature of a file by what the kernel says of it."""
    return Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True)
class Base:
    """A base file as it was when it was looked at.

    ``identity`` (hex) is the SHA-256 of its content: equal on every machine and after every copy; empty for a file that
    was only glanced at.
    """

    path: str
    size: int
    mtime_ns: int
    identity: str

    def unchanged(self) -> bool:
        """Whether the file is still the one that was looked at; False when it is gone, too."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return found.st_mtime_ns == self.mtime_ns and (not stat.S_ISREG(found.st_mode) or found.st_size == self.size)


class Digests:
    """Digests of whole files, computed once for each state of a file; may be asked from any thread.

    A state is a signature as text, so that neither a written nor a replaced file has an old one. What is known can be
    kept in a folder, for the next start.
    """

    def __init__(self) -> None:
        """Nothing is known, nothing is kept."""
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()
        self._file = ""

    def keep(self, folder: str) -> None:
        """Keep them in a file of this folder, and take what is kept there; a folder that cannot be used is not."""
        self._file = os.path.join(folder, _KEPT)
        with self._lock:
            self._known.update(self._read())

    def known(self, path: str) -> bool:
        """Whether the digest of a file is known or computed in no time; what cannot be asked for counts as known."""
        try:
            found = os.stat(path)
        except OSError:
            return True
        return found.st_size < LARGE or not stat.S_ISREG(found.st_mode) or _state(found) in self._known

    def of(self, file: BinaryIO, path: str) -> str:
        """The digest of an open file. ImageError: it was written to meanwhile."""
        found = os.fstat(file.fileno())
        state, begun = _state(found), time.time()
        known = self._known.get(state) if stat.S_ISREG(found.st_mode) else None
        if known is not None:
            return known
        total = hashlib.sha256()
        file.seek(0)
        for block in iter(lambda: file.read(_BLOCK), b""):
            total.update(block)
        if _state(os.fstat(file.fileno())) != state:
            raise ImageError(f"base {path} is being written")
        digest = total.hexdigest()
        if stat.S_ISREG(found.st_mode):  # the times of a device are of its node
            with self._lock:
                self._known[state] = digest
                if self._file and found.st_size >= LARGE and not 0 <= begun - found.st_ctime < _FRESH:
                    self._write(state, digest)
        return digest

    def _read(self) -> Mapping[str, str]:
        try:
            with open(self._file, encoding="ascii") as file:
                data = json_value(file.read())
        except (OSError, ValueError):  # nothing is kept, or it is damaged: it is computed
            return {}
        good = isinstance(data, dict) and all(isinstance(one, str) for one in data.values())
        return {key: one for key, one in data.items() if _STATE.match(key) and _DIGEST.match(one)} if good else {}

    def _write(self, state: str, digest: str) -> None:
        """Add one to what is kept, newest last; where that is not possible the next start computes it again."""
        kept = {key: one for key, one in self._read().items() if key != state}
        newest = [*list(kept.items())[1 - _MOST_KEPT :], (state, digest)]
        with contextlib.suppress(OSError):
            write_json(self._file, dict(newest), durable=False)


DIGESTS = Digests()


def identify(path: str) -> Base:
    """Look at a base: a regular file or a block device."""
    return _look(path, DIGESTS)


def glance(path: str) -> Base:
    """The same without its identity, which takes seconds for each GiB of a file that was never looked at."""
    return _look(path, None)


def _look(path: str, digests: Digests | None) -> Base:
    with failing(f"base {path} cannot be read"), open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISBLK(found.st_mode)):
            raise ImageError(f"base {path} is neither a file nor a block device")
        size = file.seek(0, os.SEEK_END)
        if not size:
            raise ImageError(f"base {path} is empty")
        return Base(path, size, found.st_mtime_ns, digests.of(file, path) if digests else "")


def _state(found: os.stat_result) -> str:
    return ":".join(map(str, signature_of(found)))
