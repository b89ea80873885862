# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Why an installation cannot go on, and the end of processes that are in its way."""

from __future__ import annotations

import contextlib
import os
import signal

from ..._common.text import is_digits


class Refused(Exception):
    """The installation cannot go on; the text names what is wrong and the fix.

    ``permanent``: trying again as it is cannot help.
    """

    def __init__(self, message: str, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


def kill_below(folder: str, proc: str = "/proc") -> None:
    """End every process that lives in a directory whose path begins like ``folder``, such as a chroot."""
    for pid in os.listdir(proc):
        if not is_digits(pid) or int(pid) == os.getpid():
            continue
        for link in ("root", "cwd"):
            with contextlib.suppress(OSError):
                if os.readlink(os.path.join(proc, pid, link)).startswith(folder):
                    os.kill(int(pid), signal.SIGKILL)
