# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Wait for the actions of a whole fleet with few requests: one poller, 50 actions a request, growing ticks."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._common.text import moment
from .api_failures import ApiError, Deadline, FleetError, MachineError, NoAnswer, TimeLimit
from .api_types import Action

if TYPE_CHECKING:
    from .cloud_client import Api


#: Ids one request asks for: as many as one page of an answer has.
BATCH = 50
#: Age (seconds) at which the first action of all is looked at, to know whether this platform is a quick one.
EARLY_LOOK = 0.5
#: Ages (seconds) at which actions are looked at; others are looked at from the start. The first look finds the quickest
#: ones, whose machines go on while the others are waited for; at the last one, usually all have ended.
AGES: dict[str, tuple[float, ...]] = {
    "create_server": (15.0, 21.0),
    "enable_rescue": (13.0, 18.0, 23.0),
    "create_image": (10.0,),
    "delete_server": (2.0,),
}
#: The same where half a batch and more is waited for, and more than a batch: requests count there, the API allows
#: 3,600 an hour.
AGES_IN_FLEET = {**AGES, "create_server": (16.0, 21.0), "enable_rescue": (13.0, 23.0)}
AGES_IN_CROWD = {**AGES, "create_server": (19.0,), "enable_rescue": (19.5,)}
#: The part of its age that an action waits for the next look, and for others so that one look has them all: alone, and
#: in a fleet of half a batch or more.
SHARE_ALONE, SHARE_IN_FLEET = 0.1, 0.25
#: Seconds between two looks.
SHORTEST_TICK, SHORTEST_TICK_IN_FLEET, LONGEST_TICK = 0.5, 2.0, 9.0
#: A look at so much of an age is the look at this age, too.
NEARLY = 0.9
#: Actions that take minutes: a few seconds more are nothing to them, dozens of requests are.
LONG = frozenset(["create_image"])
LONGEST_TICK_OF_LONG = 10.0


#: In place of an action that an answer does not name.
_UNKNOWN: Action = {}


class ActionFailed(MachineError):
    """The API says that an action ended in an error."""

    def __init__(self, action: Action) -> None:
        error = action.get("error") or {}
        self.code = error.get("code")
        super().__init__(
            f"the API action {action.get('command')} (id {action.get('id')}) failed: {error.get('message')} "
            f"({self.code})"
        )


class Schedule:
    """Decides when to look at which actions (pure): add, due_at, choose, remove."""

    def __init__(self) -> None:
        #: Of each action its command, about when it started, and when it was looked at last.
        self._pending: dict[int, tuple[str | None, float, float]] = {}
        #: What is known of this platform.
        self._learned: dict[str, tuple[float, ...]] = {}
        self._early: float | None = None
        self._known, self._quick = False, False
        self._looked = -math.inf
        self._peak = 0

    def __len__(self) -> int:
        return len(self._pending)

    def learn(self, quick: bool) -> None:
        """It is known from elsewhere whether the actions of this platform take much less time than usual."""
        self._known, self._quick = True, quick
        if quick:
            self._learned.update(dict.fromkeys(AGES, (EARLY_LOOK,)))

    def add(self, action_id: int, command: str | None, since: float) -> None:
        """An action is running, started at about ``since``."""
        if self._early is None and not self._known and self._looked < 0:
            self._early = since + EARLY_LOOK
        self._pending[action_id] = (command, since, -math.inf)
        self._peak = max(self._peak, len(self._pending))

    def remove(self, action_id: int, finished_at: float | None = None) -> None:
        """The action is no longer waited for; a much shorter duration than usual is learned from it."""
        command, since, _looked = self._pending.pop(action_id, (None, 0.0, 0.0))
        if finished_at is None or command is None or finished_at - since >= self._usual(command, AGES)[0] / 2:
            return
        self._learned[command] = (max(0.25, (finished_at - since) * 0.8),)
        if self._early is not None:
            # The first look found it ended: on this platform the others are quick, too.
            self._quick = True
            self._learned.update((kind, (EARLY_LOOK,)) for kind in AGES if kind != command)
            self._early = None

    def due_at(self) -> float | None:
        """When to look next, or None when nothing is pending."""
        if not self._pending:
            return None
        times = [(self._ready_at(*action), action[1]) for action in self._pending.values()]
        first, since = min(times)
        # one look for all that are due soon
        together = first + min(LONGEST_TICK, self._share() * max(0.0, first - since))
        ready = max(time for time, _since in times if time <= together)
        if self._early is not None and self._looked < 0:
            return min(ready, self._early)
        in_fleet = SHORTEST_TICK if self._quick else SHORTEST_TICK_IN_FLEET
        return max(ready, self._looked + self._between(SHORTEST_TICK, in_fleet))

    def choose(self, now: float) -> list[list[int]]:
        """The batches of ids to ask for at ``now``; free places go to actions that are not due yet."""
        times = {action_id: self._ready_at(*action) for action_id, action in self._pending.items()}
        # Least recently looked at first, so that stuck actions never keep the others from being looked at.
        ordered = sorted(times, key=lambda one: (times[one] > now, self._pending[one][2], times[one]))
        due = sum(1 for ready in times.values() if ready <= now)
        if self._looked >= 0:
            self._early = None
        self._looked = now
        # A small remainder is not worth a request of its own: those are the youngest, and the next look has them.
        wanted = ordered[: BATCH * max(1, (due + BATCH // 3) // BATCH)]
        for action_id in wanted:
            command, since, _looked = self._pending[action_id]
            self._pending[action_id] = (command, since, now)
        return [wanted[start : start + BATCH] for start in range(0, len(wanted), BATCH)]

    def _ready_at(self, command: str | None, since: float, looked: float) -> float:
        """When to look at an action next."""
        for age in self._ages(command):
            if looked - since < age * NEARLY:
                return since + age
        if command in LONG:
            return looked + min(LONGEST_TICK_OF_LONG, max(SHORTEST_TICK, (looked - since) / 6))
        return looked + min(LONGEST_TICK, max(SHORTEST_TICK, (looked - since) * self._share()))

    def _share(self) -> float:
        return self._between(SHARE_ALONE, SHARE_IN_FLEET)

    def _between(self, alone: float, in_fleet: float) -> float:
        """A figure for as many actions as were waited for at once."""
        return alone + (in_fleet - alone) * min(1.0, 2.0 * (self._peak - 1) / BATCH)

    def _ages(self, command: str | None) -> tuple[float, ...]:
        many = AGES_IN_CROWD if len(self._pending) > BATCH else AGES_IN_FLEET if self._peak > BATCH // 2 else AGES
        return self._usual(command, many)

    def _usual(self, command: str | None, ages: Mapping[str, tuple[float, ...]]) -> tuple[float, ...]:
        return self._learned.get(command or "") or ages.get(command or "", (EARLY_LOOK,))


class ActionBoard:
    """Threads wait here for their actions; a single thread asks the API for all of them together."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._changed = threading.Condition()
        self._schedule = Schedule()
        self._waiters: dict[int, _Waiter] = {}
        self._poller: threading.Thread | None = None

    def learn(self, quick: bool) -> None:
        """Whether actions take much less time here than usual, when something else has shown it."""
        self._schedule.learn(quick)

    def wait(self, action: Action, deadline: Deadline, since_answer: float = math.inf) -> Action:
        """Wait until ``action`` (as the API gave it) ends; returns it, raises ActionFailed or TimeLimit.

        ``since_answer``: the seconds since the API answered that it runs. They correct an age that whole seconds make
        too long, and nothing else: after a lost answer it may have run for long.
        """
        final = action if action.get("status") != "running" else self._await(action, deadline, since_answer)
        if final.get("status") == "error":
            raise ActionFailed(final)
        return final

    def _await(self, action: Action, deadline: Deadline, since_answer: float) -> Action:
        waiter = _Waiter(action)
        with self._changed:
            self._waiters[action["id"]] = waiter
            age = self._age(action)
            age = since_answer if age - 1.0 < since_answer < age else age
            self._schedule.add(action["id"], action.get("command"), self._clock() - max(0.0, age))
            if self._poller is None:
                self._poller = threading.Thread(target=self._poll, name="actions", daemon=True)
                self._poller.start()
            self._changed.notify_all()
        waiter.event.wait(deadline.left())
        with self._changed:
            self._waiters.pop(action["id"], None)
            self._schedule.remove(action["id"])
        if waiter.error is not None:
            raise waiter.error
        if waiter.action.get("status") == "running":
            raise deadline.exceeded(
                f"the API action {action.get('command')} (id {action['id']}) is still running at "
                f"{waiter.action.get('progress', '?')} %"
            )
        return waiter.action

    def _age(self, action: Action) -> float:
        """Seconds for which the action has been running by the API's own clock, 0 when that is unknown."""
        now, started = self._api.server_time(), moment(action.get("started"))
        return 0.0 if now is None or started is None else max(0.0, now - started)

    def _poll(self) -> None:
        while True:
            batches = self._next_batches()
            try:
                for batch in batches:
                    self._deliver(batch, self._ask(batch))
            except (ApiError, FleetError, MachineError) as error:
                self._fail_all(error)
            except Exception as error:  # noqa: BLE001 - a thread has no caller: the waiting threads must learn it
                self._fail_all(FleetError(f"waiting for API actions broke: {error!r}"))

    def _next_batches(self) -> list[list[int]]:
        """Sleep until it is time to look; returns the batches to ask for."""
        with self._changed:
            while True:
                now = self._clock()
                due = self._schedule.due_at()
                if due is not None and due <= now:
                    return self._schedule.choose(now)
                self._changed.wait(None if due is None else due - now)

    def _ask(self, batch: list[int]) -> dict[int, Action] | None:
        try:
            body = self._api.read(
                "/actions", Deadline(60, "an answer about API actions"), params={"id": batch, "per_page": BATCH}
            )
        except (NoAnswer, TimeLimit):
            # The waiters have time limits of their own; until then the next tick tries again.
            return None
        found = {action["id"]: action for action in body.get("actions") or []}
        if ((body.get("meta") or {}).get("pagination") or {}).get("next_page"):
            # Shorter pages than were asked for: what is not on the first one is none the less known to the API.
            return {action_id: found.get(action_id, _UNKNOWN) for action_id in batch}
        return found

    def _deliver(self, batch: list[int], found: dict[int, Action] | None) -> None:
        if found is None:
            return
        now = self._clock()
        with self._changed:
            for action_id in batch:
                waiter = self._waiters.get(action_id)
                if waiter is None or found.get(action_id) is _UNKNOWN:
                    continue
                if waiter.see(found.get(action_id)):
                    self._schedule.remove(action_id, finished_at=None if waiter.error else now)
                    waiter.event.set()

    def _fail_all(self, error: Exception) -> None:
        with self._changed:
            for action_id, waiter in self._waiters.items():
                self._schedule.remove(action_id)
                waiter.error = error
                waiter.event.set()


class _Waiter:
    """One action that a thread waits for."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.error: Exception | None = None
        self.event = threading.Event()
        self._missed = 0

    def see(self, action: Action | None) -> bool:
        """Take over what the API says now; returns whether the waiting is over."""
        if action is None:
            self._missed += 1
            if self._missed > 2:
                self.error = MachineError(
                    f"the API does not know the action {self.action.get('command')} (id {self.action['id']}) any more"
                )
            return self.error is not None
        self._missed = 0
        self.action = action
        return action.get("status") != "running"
