# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's own folder: only its user may write there, and only one run at a time works in it."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision.errors import RunError

LOCK = "kubenode-provision.lock"
_LONGEST = 24
_OURS = re.compile(rb"([0-9]{1,10}\n)?")


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700; RunError when another user could have written into it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise RunError(
            f"{path} is not a folder that only its owner, user {os.geteuid()}, can write to: name another one"
        )
    return path


@contextmanager
def only_run(state: Path) -> Iterator[None]:
    """Hold the lock of the folder; RunError when another run holds it. The kernel frees it when the process dies."""
    path = private_folder(state) / LOCK
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    with os.fdopen(fd, "r+b", buffering=0) as handle:
        # the folder may be one with files of others in it
        text = os.pread(fd, _LONGEST, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b"?"
        if not _OURS.fullmatch(text):
            raise RunError(f"{path} is no lock of this program: move it away, or name another --state-dir")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"another run is at work here (process {text.decode().strip() or '?'}): wait for it"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield
