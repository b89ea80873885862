# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Writes files and links as a whole or not at all, also when the power fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from .host import Host

#: How the temporary neighbour of a file begins; a leftover of a power cut is recognised by it.
PREFIX = ".kubenode-"


def missing_parents(host: Host, path: str) -> list[str]:
    """The directories above a path that are not there, outermost first."""
    missing, folder = [], os.path.dirname(path)
    while folder not in ("", "/") and not host.is_dir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing[::-1]


def make_parents(host: Host, path: str) -> list[str]:
    """Make the directories above a path, mode 0755; returns those that were made, outermost first."""
    missing = missing_parents(host, path)
    for made in missing:
        os.mkdir(host.path(made), 0o755)
        os.chmod(host.path(made), 0o755)
    return missing


def write_file(
    host: Host,
    path: str,
    data: bytes,
    mode: int,
    uid: int | None = None,
    gid: int | None = None,
    check: Callable[[str], None] | None = None,
) -> None:
    """Replace a file at once; ``check(temporary path)`` may raise before that. Raises OSError."""
    make_parents(host, path)
    real = host.path(path)
    fd, temporary = tempfile.mkstemp(prefix=PREFIX, dir=os.path.dirname(real))
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if uid is not None or gid is not None:
                os.fchown(fd, -1 if uid is None else uid, -1 if gid is None else gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        if check:
            check(temporary)
        os.rename(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(real))


def write_link(host: Host, path: str, target: str) -> None:
    """Replace a file or link by a symbolic link at once. Raises OSError."""
    make_parents(host, path)
    real = host.path(path)
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=os.path.dirname(real))
    try:
        temporary = os.path.join(folder, "link")
        os.symlink(target, temporary)
        os.rename(temporary, real)
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    sync_folder(os.path.dirname(real))


def sync_folder(folder: str) -> None:
    """Make a rename in it survive a power cut, where the file system can do that."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
