# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Wait for the actions of a whole fleet with few requests: one poller, 25 actions a request, growing ticks."""

from __future__ import annotations

import threading
import time

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.deadline import Deadline
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.errors import (
    ApiError,
    FleetError,
    MachineError,
    NoAnswer,
    TimeLimit,
)
from ansible_collections.kubenode.provision.plugins.module_utils._states import from_rfc3339

#: Ids one request may carry.
BATCH = 25
#: Ages (seconds) at which the first actions of a kind are looked at before their usual duration has passed.
EARLY_LOOKS = (0.5, 3.0)
#: Durations (seconds) below which these actions were hardly ever seen to end; others are looked at from the start.
USUALLY_AT_LEAST = {"create_server": 11.5, "enable_rescue": 9.5, "create_image": 10.0, "delete_server": 2.0}
LONGEST_TICK = 5.0
#: Actions that take minutes: a few seconds more are nothing to them, dozens of requests are.
LONG = frozenset(["create_image"])
LONGEST_TICK_OF_LONG = 10.0


class ActionFailed(MachineError):
    """The API says that an action ended in an error."""

    def __init__(self, action):
        error = action.get("error") or {}
        self.code = error.get("code")
        super().__init__(
            "the API action %s (id %s) failed: %s (%s)"
            % (action.get("command"), action.get("id"), error.get("message"), self.code)
        )


class Schedule:
    """Decides when to look at which actions (pure): add, due_at, choose, remove."""

    def __init__(self):
        self._pending = {}
        self._at_least = dict(USUALLY_AT_LEAST)
        self._early = {}
        self._looked = {}
        self._last_tick = None
        self._peak = 0

    def __len__(self):
        return len(self._pending)

    def add(self, action_id, command, since):
        """An action is running, started at about ``since``."""
        self._pending[action_id] = (command, since)
        self._looked[action_id] = 0.0
        self._early.setdefault(command, [since + age for age in EARLY_LOOKS])
        self._peak = max(self._peak, len(self._pending))

    def remove(self, action_id, finished_at=None):
        """Nobody waits for the action any more; when it ended, its kind's usual duration is learned from it."""
        command, since = self._pending.pop(action_id, (None, None))
        self._looked.pop(action_id, None)
        if finished_at is not None and command is not None and finished_at - since < self._usual(command) / 2:
            self._at_least[command] = max(0.25, (finished_at - since) * 0.8)

    def due_at(self, now):
        """When to look next, or None when nothing is pending."""
        if not self._pending:
            return None
        ready = min(self._ready_at(action_id) for action_id in self._pending)
        early = [times[0] for command, times in self._early.items() if times and self._any(command)]
        if self._last_tick is not None:
            ready = max(ready, self._last_tick + self._tick(max(now, ready)))
            early = [max(when, self._last_tick + 0.5) for when in early]
        return min([ready] + early)

    def choose(self, now):
        """The batches of ids to ask for at ``now``; free places go to actions that are not due yet."""
        # Least recently looked at first, so that stuck actions never keep the others from being looked at.
        ordered = sorted(
            self._pending,
            key=lambda action_id: (self._ready_at(action_id) > now, self._looked[action_id], self._ready_at(action_id)),
        )
        due = sum(1 for action_id in ordered if self._ready_at(action_id) <= now)
        regular = self._last_tick is None or now >= self._last_tick + self._tick(now)
        for times in self._early.values():
            while times and times[0] <= now:
                times.pop(0)
        self._last_tick = now
        # A small remainder is not worth a request of its own: those are the youngest, and the next look has them.
        wanted = ordered[: BATCH * (max(1, (due + BATCH // 3) // BATCH) if regular else 1)]
        self._looked.update((action_id, now) for action_id in wanted)
        return [wanted[start : start + BATCH] for start in range(0, len(wanted), BATCH)]

    def _tick(self, now):
        """Seconds between two looks: longer for a large fleet, and for actions that take long."""
        due = [action_id for action_id in self._pending if self._ready_at(action_id) <= now]
        age = max([now - self._pending[action_id][1] for action_id in due] or [0.0])
        if due and all(self._pending[action_id][0] in LONG for action_id in due):
            return min(LONGEST_TICK_OF_LONG, max(0.5, age / 6))
        share = max(len(due), min(self._peak, BATCH), BATCH // 2) / BATCH
        return min(LONGEST_TICK, max(0.5, age / 6 * share))

    def _ready_at(self, action_id):
        command, since = self._pending[action_id]
        return since + self._usual(command)

    def _usual(self, command):
        return self._at_least.get(command, EARLY_LOOKS[0])

    def _any(self, command):
        return any(pending == command for pending, _since in self._pending.values())


class ActionBoard:
    """Threads wait here for their actions; a single thread asks the API for all of them together."""

    def __init__(self, api, clock=time.monotonic):
        self._api = api
        self._clock = clock
        self._changed = threading.Condition()
        self._schedule = Schedule()
        self._waiters = {}
        self._poller = None

    def wait(self, action, deadline):
        """Wait until ``action`` (as the API gave it) ends; returns it, raises ActionFailed or TimeLimit."""
        final = action if action.get("status") != "running" else self._await(action, deadline)
        if final.get("status") == "error":
            raise ActionFailed(final)
        return final

    def _await(self, action, deadline):
        waiter = _Waiter(action)
        with self._changed:
            self._waiters[action["id"]] = waiter
            self._schedule.add(action["id"], action.get("command"), self._clock() - self._age(action))
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
                "the API action %s (id %s) is still running at %s %%"
                % (action.get("command"), action["id"], waiter.action.get("progress", "?"))
            )
        return waiter.action

    def _age(self, action):
        """Seconds for which the action has been running by the API's own clock, 0 when that is unknown."""
        now = self._api.server_time()
        try:
            return 0.0 if now is None else max(0.0, now - from_rfc3339(action.get("started") or ""))
        except ValueError:
            return 0.0

    def _poll(self):
        while True:
            batches = self._next_batches()
            try:
                for batch in batches:
                    self._deliver(batch, self._ask(batch))
            except (ApiError, FleetError, MachineError) as error:
                self._fail_all(error)
            except Exception as error:  # noqa: BLE001 - a thread has no caller: whoever waits must learn it
                self._fail_all(FleetError("waiting for API actions broke: %r" % error))

    def _next_batches(self):
        """Sleep until it is time to look; returns the batches to ask for."""
        with self._changed:
            while True:
                now = self._clock()
                due = self._schedule.due_at(now)
                if due is not None and due <= now:
                    return self._schedule.choose(now)
                self._changed.wait(None if due is None else due - now)

    def _ask(self, batch):
        try:
            body = self._api.read("/actions", Deadline(60, "an answer about API actions"), params={"id": batch})
        except (NoAnswer, TimeLimit):
            # The waiters have time limits of their own; until then the next tick tries again.
            return None
        return {found["id"]: found for found in body.get("actions") or []}

    def _deliver(self, batch, found):
        if found is None:
            return
        now = self._clock()
        with self._changed:
            for action_id in batch:
                waiter = self._waiters.get(action_id)
                if waiter is None:
                    continue
                if waiter.see(found.get(action_id)):
                    self._schedule.remove(action_id, finished_at=None if waiter.error else now)
                    waiter.event.set()

    def _fail_all(self, error):
        with self._changed:
            for action_id, waiter in self._waiters.items():
                self._schedule.remove(action_id)
                waiter.error = error
                waiter.event.set()


class _Waiter:
    """One action somebody waits for."""

    def __init__(self, action):
        self.action = action
        self.error = None
        self.event = threading.Event()
        self._missed = 0

    def see(self, action):
        """Take over what the API says now; returns whether the waiting is over."""
        if action is None:
            self._missed += 1
            if self._missed > 2:
                self.error = MachineError(
                    "the API does not know the action %s (id %s) any more"
                    % (self.action.get("command"), self.action["id"])
                )
            return self.error is not None
        self._missed = 0
        self.action = action
        return action.get("status") != "running"
