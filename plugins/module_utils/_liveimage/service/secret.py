# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The secret that names are made of and URLs are signed with: one line in a file nobody else may read."""

from __future__ import annotations

import contextlib
import os
import stat

from ..errors import ImageError

SHORTEST = 32  # characters
_LONGEST = 4096
_OTHERS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


def load(path: str) -> bytes:
    """The secret of a file, which is made when it is not there yet; white space at its end does not count."""
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    _make(path)
    return _read(path)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(_LONGEST + 1).rstrip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ImageError("secret-file %s cannot be read: %s" % (path, error.strerror or error)) from error
    if stat.S_IMODE(found.st_mode) & _OTHERS:
        raise ImageError(
            "secret-file %s has mode %04o: others may read or write it; chmod 600 it, and make another secret if they "
            "could have read this one" % (path, stat.S_IMODE(found.st_mode))
        )
    if not SHORTEST <= len(data) <= _LONGEST:
        raise ImageError(
            "secret-file %s holds %d characters; between %d and %d are needed, such as from: openssl rand -hex 32"
            % (path, len(data), SHORTEST, _LONGEST)
        )
    return data


def _make(path: str) -> None:
    """A new secret, whole or not there; of two programs that start at once the first one's stays."""
    draft = "%s.%d" % (path, os.getpid())
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(os.urandom(32).hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    except OSError as error:
        raise ImageError(
            "secret-file %s is not there and cannot be made: %s" % (path, error.strerror or error)
        ) from error
