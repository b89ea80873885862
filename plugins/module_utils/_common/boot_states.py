# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Boot states of a machine and the transitions between them (pure, private to the collection)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import text

UNSET = ""
INITIALIZING = "Initializing"
ENABLING_RESCUE = "EnablingRescue"
BOOTING_TO_RESCUE = "BootingToRescue"
#: Only with ``kubenode_throttle``: its rescue answers, and as many others as may write do so.
WAITING_IN_RESCUE = "WaitingInRescue"
RUNNING_IMAGE_COMMAND = "RunningImageCommand"
BOOTING_TO_REAL_OS = "BootingToRealOS"
OPERATING_SYSTEM_RUNNING = "OperatingSystemRunning"
PROVISIONING_FAILED = "ProvisioningFailed"

#: The order in which a machine passes through the states; reports sort by it.
ORDER = (
    UNSET,
    INITIALIZING,
    ENABLING_RESCUE,
    BOOTING_TO_RESCUE,
    WAITING_IN_RESCUE,
    RUNNING_IMAGE_COMMAND,
    BOOTING_TO_REAL_OS,
    OPERATING_SYSTEM_RUNNING,
    PROVISIONING_FAILED,
)
#: Seconds after which a wait says what it waits for, and from one such line to the next.
QUIET, AGAIN = 10.0, 60.0


class Timeline:
    """The boot state of one machine, and every change of it.

    ``since`` is the epoch second at which ``state`` began: a later step of the same run continues
    the time line of the step before it by passing on that step's ``since``.
    """

    def __init__(
        self, machine: str, state: str = UNSET, since: float | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.machine = machine
        self.state = _known(state)
        self._clock = clock
        self.since = clock() if since is None else since
        self.transitions: list[dict[str, Any]] = []
        #: Called with the state whenever it has changed.
        self.heard: Callable[[str], None] | None = None

    def to(self, state: str, at: float | None = None) -> None:
        """Enter ``state`` now (or at epoch second ``at``); entering the present state records nothing."""
        if _known(state) == self.state:
            return
        at = self._clock() if at is None else at
        self.transitions.append(
            {
                "machine": self.machine,
                "from": self.state,
                "to": state,
                "at": text.to_rfc3339(at),
                "seconds": round(max(0.0, at - self.since), 3),
            }
        )
        self.state, self.since = state, at
        self._tell()

    def found(self, state: str) -> None:
        """The machine was found in ``state``: this run did not change it, so there is no transition to record."""
        if _known(state) != self.state:
            self.state, self.since = state, self._clock()
            self._tell()

    def result(self) -> dict[str, Any]:
        """The keys every step's result carries: ``boot_state``, ``boot_state_since``, ``transitions``."""
        return {
            "boot_state": self.state,
            "boot_state_since": text.to_rfc3339(self.since),
            "transitions": list(self.transitions),
        }

    def _tell(self) -> None:
        if self.heard is not None:
            self.heard(self.state)


def _known(state: str) -> str:
    if state not in ORDER:
        raise ValueError(f"unknown boot state {state!r}")
    return state


class LongWait:
    """Says now and then what is waited for, for ``limit`` seconds at most, once that has taken some seconds."""

    def __init__(self, what: str, limit: float) -> None:
        self._what, self._limit, self._next = what, limit, QUIET

    def line(self, waited: float, seen: str) -> str:
        """What to say after ``waited`` seconds, when ``seen`` was seen last; mostly nothing."""
        if not self._next <= waited < self._limit:
            return ""
        self._next = waited + AGAIN
        return f"{self._what}, {waited:.0f} of at most {self._limit:.0f} s: {text.one_line(seen, 300)}"
