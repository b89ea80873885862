# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's own folder: only its user may write there, and only one run at a time works in it."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provision.errors import RunError


def private_folder(path: Path) -> Path:
    """Make a folder of mode 0700; RunError when somebody else could have put something into it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise RunError(f"{path} is not a folder that only its owner, user {os.geteuid()}, can write to: remove it")
    return path


@contextmanager
def only_run(state: Path) -> Iterator[None]:
    """Hold the lock of the folder; RunError when another run holds it. The kernel frees it when the process dies."""
    with (private_folder(state) / "lock").open("a+", encoding="ascii") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            raise RunError(
                f"another run is at work here (process {handle.read().strip() or '?'}): wait for it"
            ) from None
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield
