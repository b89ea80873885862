# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be sent again when SSH is lost, is: for a time, since a machine or a network may be slow for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from .remote import OTHER_KEY, Remote, Unreachable

#: Seconds for which a machine that had let us in may be out of reach.
PATIENCE = 60.0
_LONGEST_PAUSE = 5.0


class Patience:
    """Counts from the first loss; whatever gets through begins it again."""

    def __init__(
        self,
        remote: Remote,
        seconds: float = PATIENCE,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._remote, self._seconds = remote, seconds
        # looked up late, so that a test can put another clock there
        self._clock, self._sleep = clock or time.monotonic, sleep or time.sleep
        self._since: float | None = None
        self._pause = 0.5

    def bear(self, loss: Unreachable) -> None:
        """Close the connection and wait a little; raises the loss when it has lasted too long, or will last."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        if loss.kind == OTHER_KEY or now - self._since >= self._seconds:
            raise loss
        self._remote.close()
        self._sleep(self._pause)
        self._pause = min(_LONGEST_PAUSE, self._pause * 1.6)
