# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the machine's own tools: each may be missing, none may hang for ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

MISSING = 127
_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Tools:
    """``run(argv)`` returns exit code, stdout and stderr, as ``AnsibleModule.run_command`` does."""

    def __init__(self, run: Callable[..., tuple[int, str, str]], places: Sequence[str] = _PLACES) -> None:
        self._run, self._places = run, places

    def find(self, name: str) -> str | None:
        """Where a tool lies; None when it is not there."""
        for place in self._places:
            path = os.path.join(place, name)
            if os.access(path, os.X_OK):
                return path
        return None

    def has(self, name: str) -> bool:
        """Whether the tool is there."""
        return self.find(name) is not None

    def __call__(self, name: str, *arguments: object, limit: float = 120) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a tool, which is killed after ``limit`` seconds; 127 when it is not there."""
        path = self.find(name)
        if path is None:
            return MISSING, "", f"{name} is not there"
        # TERM, and KILL when that does not help; `timeout` ends with 124 or 137 then.
        guard = [self.find("timeout") or "timeout", "--kill-after=5", str(limit)]
        code, out, err = self._run(guard + [path] + [str(word) for word in arguments])
        if code in (124, 137):
            err = f"{name} did not end within {int(limit)} s"
        return code, out, err
