# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that the in-rescue program runs, under a limit on their time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from ..._common.text import is_digits

#: What a program that is not there, or had to be ended, returns here, as in the shell and of `timeout`.
ABSENT, ENDED = 127, 124


class Refused(Exception):
    """The installation cannot go on; the text names what is wrong and the fix.

    ``permanent``: trying again as it is cannot help.
    """

    def __init__(self, message: str, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


def run(argv: Sequence[str], limit: float = 60, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run ``argv`` without input; returns (exit code, stdout, stderr) as text, and never raises.

    ``limit``: seconds; ``environment``: variables for it alone.
    """
    try:
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, LC_ALL="C", **(environment or {})),
            start_new_session=True,
        )
    except OSError as error:
        return ABSENT, "", str(error)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        out = process.communicate()[0]
        return ENDED, out.decode("utf-8", "replace"), f"it did not end within {int(limit)} s"
    except BaseException:
        kill_group(process.pid)
        raise
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def kill_group(leader: int) -> None:
    """End a session leader and its process group at once."""
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def kill_below(folder: str, proc: str = "/proc") -> None:
    """End every process that lives in a directory whose path begins like ``folder``, such as a chroot."""
    for pid in os.listdir(proc):
        if not is_digits(pid) or int(pid) == os.getpid():
            continue
        for link in ("root", "cwd"):
            with contextlib.suppress(OSError):
                if os.readlink(os.path.join(proc, pid, link)).startswith(folder):
                    os.kill(int(pid), signal.SIGKILL)
