# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock of a test's own, so that pauses take no time."""

from __future__ import annotations


class Clock:
    """Moves only when the test moves ``now``, or by a sleep; ``slept`` has the pauses in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    #: in place of the module time
    monotonic = time = __call__

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
