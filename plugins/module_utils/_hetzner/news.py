# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The news of a fleet while its module runs: one line of JSON in a file for each change of a machine."""

from __future__ import annotations

import json
import math
import os
import threading

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import FleetError


class News:
    """Appends to a file. A file that cannot be written any more ends nothing."""

    def __init__(self, path, api, masked=str):
        """``masked``: a text without secrets. Raises FleetError when the file cannot be opened."""
        self._api, self._masked = api, masked
        self._lock = threading.Lock()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FleetError("progress_file: '%s' cannot be written: %s" % (path, error.strerror)) from error

    def follow(self, run):
        """Tell every change of the boot state of a machine from now on, and its present one."""
        run.timeline.heard = lambda state: self.tell(run, state=state)
        self.tell(run)

    def tell(self, run, state=None, ended=False):
        """One line about a machine."""
        budget = getattr(self._api, "budget", None)
        remaining = budget.remaining() if budget is not None else math.inf
        line = {
            "machine": run.name,
            "state": run.timeline.state if state is None else state,
            "text": self._masked(run.result.get("msg", "")) if ended else "",
            "ended": ended,
            "failed": bool(ended and run.result.get("failed")),
            "requests": {
                "made": self._api.calls,
                "limit": budget.limit if budget is not None else None,
                "remaining": max(0, math.floor(remaining)) if math.isfinite(remaining) else None,
            },
        }
        data = json.dumps(line).encode("ascii") + b"\n"
        with self._lock:
            try:
                os.write(self._file, data)
            except OSError:
                return
