# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that are run on the machine, under a limit on their time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

#: What a program that is not there, or had to be ended, returns here, as in the shell and of `timeout`.
ABSENT, ENDED = 127, 124


def run(
    argv: Sequence[str], environ_update: Mapping[str, str] | None = None, limit: float | None = None
) -> tuple[int, str, str]:
    """Run ``argv`` without input; exit code (or ABSENT or ENDED), stdout and stderr, as text.

    After ``limit`` seconds it and what it has started get TERM, and KILL 5 s later.
    """
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, **(environ_update or {})),
            start_new_session=limit is not None,
        )
    except OSError as exc:
        return ABSENT, "", str(exc)
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        code = ENDED
        out, err = _end(process)
    except BaseException:
        if limit is not None:
            kill_group(process.pid)
        raise
    return code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """End a session leader and its process group; returns what was printed."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        return process.communicate()


def kill_group(leader: int) -> None:
    """End a session leader and its process group at once."""
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
