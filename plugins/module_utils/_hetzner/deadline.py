# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A time limit that is handed through all steps it covers."""

from __future__ import annotations

import time

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import TimeLimit


class Deadline:
    """Ends ``seconds`` after it was made; ``what`` completes the sentence 'was not reached within …'."""

    def __init__(self, seconds, what, clock=time.monotonic, sleep=time.sleep):
        self.seconds = seconds
        self.what = what
        self._clock = clock
        self._sleep = sleep
        self._end = clock() + seconds

    def left(self):
        """Seconds that are left, never negative."""
        return max(0.0, self._end - self._clock())

    def exceeded(self, reason):
        """The error to raise when time is up; ``reason`` tells what was seen last."""
        return TimeLimit("%s was not reached within %g s: %s" % (self.what, self.seconds, reason))

    def sleep(self, seconds, reason):
        """Sleep, or raise TimeLimit when the limit would pass during the sleep."""
        if seconds > self.left():
            raise self.exceeded(reason)
        self._sleep(seconds)
