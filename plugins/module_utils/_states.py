# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Boot states of a machine and the transitions between them (pure, private to the collection)."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone

UNSET = ""
INITIALIZING = "Initializing"
ENABLING_RESCUE = "EnablingRescue"
BOOTING_TO_RESCUE = "BootingToRescue"
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
    RUNNING_IMAGE_COMMAND,
    BOOTING_TO_REAL_OS,
    OPERATING_SYSTEM_RUNNING,
    PROVISIONING_FAILED,
)

_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)


def to_rfc3339(epoch):
    """Epoch seconds to an RFC 3339 UTC string with milliseconds."""
    moment = datetime.fromtimestamp(epoch, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (moment.microsecond // 1000)


def from_rfc3339(text):
    """RFC 3339 string (``Z`` or offset) to epoch seconds; raises ValueError on anything else."""
    # What fromisoformat takes differs from one Python to the next, and is more than RFC 3339.
    match = _RFC3339.match(text) if isinstance(text, str) else None
    if not match:
        raise ValueError("%.100r is no time with a time zone, such as 2026-01-31T12:00:00Z" % (text,))
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in ("Z", "z") else zone
    return datetime.fromisoformat("%sT%s.%s%s" % (day, clock, (fraction or "").ljust(6, "0")[:6], zone)).timestamp()


class Timeline:
    """The boot state of one machine, and every change of it.

    ``since`` is the epoch second at which ``state`` began: a later step of the same run continues
    the time line of the step before it by passing on that step's ``since``.
    """

    def __init__(self, machine, state=UNSET, since=None, clock=time.time):
        if state not in ORDER:
            raise ValueError("unknown boot state %r" % state)
        self.machine = machine
        self.state = state
        self._clock = clock
        self.since = clock() if since is None else since
        self.transitions = []

    def to(self, state, at=None):
        """Enter ``state`` now (or at epoch second ``at``); entering the present state records nothing."""
        if state not in ORDER:
            raise ValueError("unknown boot state %r" % state)
        if state == self.state:
            return
        at = self._clock() if at is None else at
        self.transitions.append(
            {
                "machine": self.machine,
                "from": self.state,
                "to": state,
                "at": to_rfc3339(at),
                "seconds": round(max(0.0, at - self.since), 3),
            }
        )
        self.state, self.since = state, at

    def found(self, state):
        """The machine was found in ``state``: nobody changed it, so there is no transition to record."""
        if state not in ORDER:
            raise ValueError("unknown boot state %r" % state)
        if state != self.state:
            self.state, self.since = state, self._clock()

    def result(self):
        """The keys every step's result carries: ``boot_state``, ``boot_state_since``, ``transitions``."""
        return {
            "boot_state": self.state,
            "boot_state_since": to_rfc3339(self.since),
            "transitions": list(self.transitions),
        }
