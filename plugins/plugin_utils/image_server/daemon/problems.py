# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong now: each problem is logged once when it comes, and once when it is gone.

Callers report a problem, and its end, after they have changed what is served: a log line and the served images agree.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import escaped

LOG = logging.getLogger("kubenode.images")


class Problems:
    """The problems that there are now, each by what it is a problem of."""

    def __init__(self) -> None:
        """Nothing is wrong."""
        self._found: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._found)

    def report(self, what: str, problem: str) -> None:
        """Something's problem as it is now; "": none."""
        if self._found.get(what, "") == problem:
            return
        if problem:
            self._found[what] = problem
            LOG.error("%s: %s", escaped(what), escaped(problem))
        else:
            del self._found[what]
            LOG.info("%s: mended", escaped(what))

    def forget(self, what: str) -> None:
        """It is gone, and its problem with it."""
        self._found.pop(what, None)

    def all(self) -> Mapping[str, str]:
        """Every problem, in text that can be printed."""
        return {escaped(what): escaped(problem) for what, problem in sorted(self._found.copy().items())}
