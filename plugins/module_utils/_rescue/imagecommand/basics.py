# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What every module of an image command uses: sizes, errors, the tools of the rescue."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Callable

#: Prints a text for the user.
Say = Callable[[str], None]
MIB = 1 << 20
CHUNK = MIB  # what is read from the network at once
BLOCK = 4 * MIB  # what is written at once


class Refused(Exception):
    """The installation cannot go on; the text is the whole reason, for the user."""


class HttpStatus(Refused):
    """The server answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Terminated(BaseException):
    """A signal asked the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


LIBC = ctypes.CDLL(None, use_errno=True)  # for calls that Python lacks


def run(*command: str, accept: tuple[int, ...] = (0,), stdin: str = "") -> str:
    """Run a tool of the rescue; return its stdout, refuse when its exit code is not expected."""
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, input=stdin, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except FileNotFoundError:
        raise Refused(f"{command[0]} is missing in this rescue") from None
    if done.returncode not in accept:
        text = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise Refused(f"{' '.join(command)} ended with exit code {done.returncode}: {'; '.join(text)}")
    return done.stdout


def patience(seconds: float = 300) -> Iterator[None]:
    """Yield every 0.2 s until the time is over, which is long: a busy machine is no broken one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.2)
