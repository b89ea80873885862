# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sees to it that a lab that dies takes its machines along, however it dies."""

from __future__ import annotations

import contextlib
import subprocess

from .cgroup import CGroup

# Waits for the end of its input, which comes when the lab is gone: a killed process closes its pipes, too.
_SCRIPT = 'read -r line; echo 1 >"$0"'


class Guard:
    """A process outside the lab that kills the lab's control group when the lab is gone."""

    def __init__(self, cgroup: CGroup) -> None:
        """Stand guard from now on."""
        self._process = subprocess.Popen(
            ["sh", "-c", _SCRIPT, str(cgroup.path / "cgroup.kill")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C or a kill of the lab's process group must not reach it
        )

    def close(self) -> None:
        """Stand down; the control group has been removed."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
