# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a running task tells the user, besides its result.

A worker of Ansible dies at once when Ctrl-C is pressed. If that happened while it held the lock of the queue to the
main process, the main process would wait for ever, so the signals wait until a message is through.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ansible.utils.display import Display

_display = Display()
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _whole() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def log_line(machine: str, line: str) -> None:
    """A line of the image command's log, for C(-v)."""
    with _whole():
        _display.v(line, host=machine)


def progress(machine: str, message: str) -> None:
    """A line that everybody sees."""
    with _whole():
        _display.display(f"{machine}: {message}")


def warning(message: str) -> None:
    """A warning."""
    with _whole():
        _display.warning(message)
