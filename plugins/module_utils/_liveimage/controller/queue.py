# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What is to be looked at, and when: each key waits once, and only one worker at a time has it."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Hashable


class Queue:
    """Keys with the moment they are due; any number of threads put and take."""

    def __init__(self) -> None:
        self._due: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._taken: set[Hashable] = set()
        self._again: dict[Hashable, float] = {}  # put while a worker had them
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, key: Hashable, delay: float = 0.0) -> None:
        """Have a key looked at in ``delay`` seconds, or earlier when that is asked for already."""
        with self._changed:
            self._put(key, time.monotonic() + delay)

    def take(self) -> Hashable | None:
        """The next key, when it is due; None when the queue was closed. `done` gives it back."""
        with self._changed:
            while not self._closed:
                wait = None
                if self._heap:
                    due, _number, key = self._heap[0]
                    if self._due.get(key) != due:  # asked for earlier since
                        heapq.heappop(self._heap)
                        continue
                    wait = due - time.monotonic()
                    if wait <= 0:
                        heapq.heappop(self._heap)
                        del self._due[key]
                        self._taken.add(key)
                        return key
                self._changed.wait(wait)
            return None

    def done(self, key: Hashable, delay: float | None = None) -> None:
        """A worker is through with a key, which is due again in ``delay`` seconds (None: when it is put)."""
        with self._changed:
            self._taken.discard(key)
            due = self._again.pop(key, None)
            if delay is not None:
                later = time.monotonic() + delay
                due = later if due is None else min(due, later)
            if due is not None:
                self._put(key, due)

    def close(self) -> None:
        """Let every worker go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._due) + len(self._taken)

    def _put(self, key: Hashable, due: float) -> None:
        if key in self._taken:
            self._again[key] = min(due, self._again.get(key, due))
        elif due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            self._changed.notify()
