# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a fleet is, from what was heard of its machines (pure): counts, rates, time left, the line that sums it up.

Nothing is guessed: a rate needs two looks at a counter, and how long a step takes is unknown until a tenth of the
machines took it. For a machine that needs longer than all of them, nothing is known.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line


@dataclass(frozen=True)
class Words:
    """What a machine does in one boot state."""

    #: In the line that sums a fleet up: "3 writing".
    line: str
    #: In a column of the table, at most nine characters.
    column: str
    #: On a machine's bar on the page, and in the page's legend; empty for states in which no time is spent.
    letter: str = ""
    legend: str = ""


#: The order is that of the line that sums a fleet up.
WORDS = {
    boot_states.RUNNING_IMAGE_COMMAND: Words("writing", "writing", "C", "the image command runs"),
    boot_states.BOOTING_TO_REAL_OS: Words(
        "booting the new system", "booting", "B", "boots its new system, until that is proven"
    ),
    boot_states.OPERATING_SYSTEM_RUNNING: Words("in the new system", "runs"),
    boot_states.WAITING_IN_RESCUE: Words("waiting for their turn", "waiting", "W", "waits in its rescue for its turn"),
    boot_states.BOOTING_TO_RESCUE: Words("waiting for the rescue", "to rescue", "R", "boots into its rescue"),
    boot_states.ENABLING_RESCUE: Words("arming the rescue", "arming", "E", "its rescue is armed"),
    boot_states.INITIALIZING: Words("being created", "creating", "I", "is created"),
    boot_states.UNSET: Words("being looked at", "looked at", "Q", "is requested"),
    boot_states.PROVISIONING_FAILED: Words("failing", "failing"),
}


#: How a machine left the task; a late one is tried once more by another task.
DONE, FAILED, LATE = "done", "failed", "late"
#: Seconds whose bytes make a rate.
WINDOW = 15.0
#: One machine of so many is enough to say how long a step takes.
ENOUGH = 10


class Machine:
    """One machine: what was heard of it last. Times are those of the fleet's clock, in seconds."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.state, self.since = boot_states.UNSET, now
        #: When it came into each state, as far as that was heard.
        self.entered: dict[str, float] = {}
        self.message = ""
        self.done: int | None = None
        self.total: int | None = None
        #: When its last byte came in this state; what it does since then has no bytes.
        self.written: float | None = None
        self.ended: float | None = None
        self.outcome = ""
        self._seen: deque[tuple[float, int]] = deque()

    def measured(self, done: int, total: int | None, now: float) -> None:
        """So many bytes of so many (None: unknown) are done; a smaller number than before begins a new count."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self.done, self.total = done, total
        if total is None or done < total:
            self.written = None
        elif self.written is None:
            self.written = now
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    def forget_bytes(self, now: float) -> None:
        """It does something that has no bytes."""
        if self.done is not None and self.written is None:
            self.written = now
        self.done = self.total = None
        self._seen.clear()

    def rate(self, now: float) -> float | None:
        """Bytes a second, until now: it falls while none come. None when none are left, or that is unknown."""
        if len(self._seen) < 2 or now <= self._seen[0][0] or self.written is not None:
            return None
        return (self._seen[-1][1] - self._seen[0][1]) / (now - self._seen[0][0])

    def share(self) -> float | None:
        """How much of its bytes is done, from 0 to 1; None when that is unknown."""
        return None if not self.total or self.done is None else min(1.0, self.done / self.total)

    def left(self, now: float) -> float | None:
        """Seconds until its last byte, at its present rate."""
        rate = self.rate(now)
        if not rate or not self.total or self.done is None:
            return None
        return max(0.0, self.total - self.done) / rate


class Fleet:
    """Machines by name, in the order of the task; what is heard of others is dropped."""

    def __init__(self, names: Sequence[str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self.machines = {name: Machine(name, clock()) for name in names}
        #: Requests: made by this task; the limit of the account, and what is left of it (None: not known).
        self.made = 0
        self.limit: int | None = None
        self.remaining: int | None = None
        #: Raised by each thing that was heard.
        self.version = 0

    def state(self, name: str, state: str) -> bool:
        """The machine is in this state; whether that is news."""
        machine = self.machines.get(name)
        if machine is None or state not in WORDS or state == machine.state:
            return False
        machine.state, machine.since = state, self._clock()
        machine.entered[state] = machine.since
        machine.forget_bytes(machine.since)
        if state not in (boot_states.BOOTING_TO_REAL_OS, boot_states.OPERATING_SYSTEM_RUNNING):
            machine.written = None
        self.version += 1
        return True

    def message(self, name: str, text: str) -> None:
        """The last thing that a machine said, or that was said of it."""
        if name in self.machines:
            self.machines[name].message = one_line(text)
            self.version += 1

    def measured(self, name: str, done: int | None, total: int | None) -> None:
        """Bytes of what a machine does; ``done`` is None when it does something else now."""
        machine = self.machines.get(name)
        if machine is None:
            return
        if done is None:
            machine.forget_bytes(self._clock())
        else:
            machine.measured(done, total, self._clock())
        self.version += 1

    def end(self, name: str, outcome: str, text: str) -> bool:
        """The machine is through with this task; whether that is news."""
        machine = self.machines.get(name)
        if machine is None or machine.ended is not None:
            return False
        machine.ended, machine.outcome = self._clock(), outcome
        self.message(name, text)
        return True

    def requests(self, made: int, limit: int | None, remaining: int | None) -> None:
        """What the provider's API was asked."""
        self.made, self.limit, self.remaining = made, limit, remaining

    # --- queries

    def busy(self) -> list[Machine]:
        """Machines that are not through."""
        return [machine for machine in self.machines.values() if machine.ended is None]

    def failures(self) -> list[Machine]:
        """Machines that failed or are late, the failed ones first, of them the last one first."""
        bad = [machine for machine in self.machines.values() if machine.outcome in (FAILED, LATE)]
        return sorted(bad, key=lambda one: (one.outcome, -(one.ended or 0.0)))

    def left(self) -> tuple[float, str] | None:
        """Seconds until the last machine is through, or else until all that write have written; and which of both."""
        now, busy = self._clock(), self.busy()
        writing = {machine.name: machine.left(now) for machine in busy if machine.written is None}
        whole = [self._left_of(machine, writing.get(machine.name), now) for machine in busy]
        known = [seconds for seconds in whole if seconds is not None]
        if whole and len(known) == len(whole):
            return max(known), "left"
        # A machine that has not begun to write makes the time of the others no answer.
        alone = all(one.state == boot_states.RUNNING_IMAGE_COMMAND for one in busy)
        bytes_left = [seconds for seconds in writing.values() if seconds is not None]
        if alone and bytes_left and len(bytes_left) == len(writing):
            return max(bytes_left), "of writing left"
        return None

    def _left_of(self, machine: Machine, bytes_left: float | None, now: float) -> float | None:
        """As long as machines that are through took from where this one is."""
        if bytes_left is not None:
            after = self._usual(lambda one: one.written, 0.0)
            return None if after is None else bytes_left + after
        state = machine.state
        if state == boot_states.RUNNING_IMAGE_COMMAND and machine.written is not None:
            return self._rest(lambda one: one.written, now - machine.written)
        return self._rest(lambda one: one.entered.get(state), now - machine.since)

    def _rest(self, since: Callable[[Machine], float | None], spent: float) -> float | None:
        usual = self._usual(since, spent)
        return None if usual is None else usual - spent

    def _usual(self, since: Callable[[Machine], float | None], spent: float) -> float | None:
        """Seconds from a moment to the end, of the machines that ended well and took longer than ``spent``."""
        took = [
            machine.ended - began
            for machine in self.machines.values()
            if machine.ended is not None and machine.outcome == DONE and (began := since(machine)) is not None
        ]
        longer = [seconds for seconds in took if seconds > spent]
        # The first one had the controller, the image server and its host to itself.
        return statistics.median(longer) if longer and len(took) * ENOUGH >= len(self.machines) else None

    def sum_line(self) -> str:
        """The whole fleet on one line."""
        busy, outcomes = self.busy(), [machine.outcome for machine in self.machines.values()]
        parts = [f"{outcomes.count(DONE)}/{len(self.machines)} done"]
        for state, words in WORDS.items():
            there = [machine for machine in busy if machine.state == state]
            if there:
                parts.append(f"{len(there)} {words.line}{self._bytes_of(there)}")
        parts += [f"{outcomes.count(one)} {one}" for one in (LATE, FAILED) if one in outcomes]
        if self.limit is not None and self.remaining is not None:
            parts.append(f"API {max(0, self.limit - self.remaining)} of {self.limit}")
        elif self.made:
            parts.append(f"API {self.made}")
        left = self.left()
        if left:
            parts.append(f"about {roughly(left[0])} {left[1]}")
        return " · ".join(parts)

    def _bytes_of(self, machines: Sequence[Machine]) -> str:
        """`` 41 % (slowest node-7, 12 MB/s)``, as far as it is known; a machine that has given no byte yet has none."""
        shares = [machine.share() if machine.written is None else 1.0 for machine in machines]
        unknown = any(machine.done is not None and not machine.total for machine in machines)
        known = [share for share in shares if share is not None]
        text = f" {percent(sum(known) / len(machines))}" if known and not unknown else ""
        rates = [(rate, machine.name) for machine in machines if (rate := machine.rate(self._clock())) is not None]
        if not rates:
            return text
        rate, name = min(rates)
        # One of which the rate is known is not the slowest one of all.
        whose = f"slowest {name}, " if len(rates) > 1 else f"{name}, " if len(machines) > 1 else ""
        return f"{text} ({whose}{speed(rate)})"


def percent(share: float) -> str:
    """A share from 0 to 1; 100 % only when nothing is left."""
    return f"{int(share * 100)} %"


def speed(rate: float) -> str:
    """Bytes a second."""
    megabytes = rate / 1e6
    return f"{megabytes:.0f} MB/s" if megabytes >= 10 else f"{megabytes:.1f} MB/s"


def roughly(seconds: float) -> str:
    """A time that is an estimate."""
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(1, round(seconds / 5)) * 5} s"
