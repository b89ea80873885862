# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The run of Ansible that a module belongs to: a module that outlives it must change nothing any more."""

from __future__ import annotations

import signal
import socket
from typing import Any

#: Why a module ends before its work is done.
ENDED = "the run that this belongs to has ended"


class OwnRun:
    """The run of a module. Killing it does not end a module that it has started.

    Its task keeps a socket open: the kernel closes that with the task's process. The socket's name is no file (Linux:
    unix(7), abstract), so that a module finds it as another user, too, and nothing of a killed run is left.
    """

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        try:
            self._socket.connect(f"\0{name}")
            self._was_there = True
        except OSError:
            self._was_there = False

    @property
    def has_ended(self) -> bool:
        """Whether it was killed, so that the next one may be at work."""
        try:
            if self._was_there:
                self._socket.recv(1)  # nothing is ever sent
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True


def own_run_of(params: dict[str, Any]) -> OwnRun | None:
    """The run of a module with these parameters; None when it cannot be seen from here."""
    # Its task starts the module in a thread that blocks signals, and a child inherits what is blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    return OwnRun(params["run_socket"]) if params.get("run_socket") else None


def run_options() -> dict[str, Any]:
    """The argument spec of the documentation fragment ``attributes.own_run``."""
    return {"run_socket": {"type": "str"}}
