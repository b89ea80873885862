# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the machine's own tools: each may be missing, none may hang for ever."""

from __future__ import annotations

import os

MISSING = 127
_PLACES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Tools:
    """``run(argv)`` returns exit code, stdout and stderr, as ``AnsibleModule.run_command`` does."""

    def __init__(self, run, places=_PLACES):
        self._run, self._places = run, places

    def find(self, name):
        """Where a tool lies; None when it is not there."""
        for place in self._places:
            path = os.path.join(place, name)
            if os.access(path, os.X_OK):
                return path
        return None

    def has(self, name):
        """Whether the tool is there."""
        return self.find(name) is not None

    def __call__(self, name, *arguments, limit=120):
        """Exit code, stdout and stderr of a tool, which is killed after ``limit`` seconds; 127 when it is not there."""
        path = self.find(name)
        if path is None:
            return MISSING, "", "%s is not there" % name
        # TERM, and KILL when that does not help; `timeout` ends with 124 or 137 then.
        guard = [self.find("timeout") or "timeout", "--kill-after=5", str(limit)]
        code, out, err = self._run(guard + [path] + [str(word) for word in arguments])
        if code in (124, 137):
            err = "%s did not end within %d s" % (name, limit)
        return code, out, err
