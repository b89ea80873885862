# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A base file and its identity: what makes two states of a file on disk the same content."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass

from .errors import ImageError

_SAMPLES = 64  # places of the file whose bytes go into its identity
_SAMPLE = 4096
_HEAD = 64 * 1024  # system area and volume descriptors of an ISO


@dataclass(frozen=True)
class Base:
    """A base file as it was when it was looked at.

    ``identity`` (hex) stands for its content: equal for the same file on every replica and after every restart, and
    another one as soon as size, time of change or a sampled byte differs.
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


def identify(path: str) -> Base:
    """Look at a base: a regular file or a block device."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISBLK(found.st_mode)):
                raise ImageError("base %s is neither a file nor a block device" % path)
            size = file.seek(0, os.SEEK_END)
            total = hashlib.sha256(b"%d %d\n" % (size, found.st_mtime_ns))
            file.seek(0)
            total.update(file.read(_HEAD))
            for place in range(_SAMPLES):
                file.seek(size * place // _SAMPLES)
                total.update(file.read(_SAMPLE))
    except OSError as error:
        raise ImageError("base %s cannot be read: %s" % (path, error.strerror or error)) from error
    if not size:
        raise ImageError("base %s is empty" % path)
    return Base(path, size, found.st_mtime_ns, total.hexdigest())
