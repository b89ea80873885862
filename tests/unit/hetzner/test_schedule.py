# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When to look at which actions: few requests for a fleet, no action forgotten, quick for a quick platform."""

from __future__ import annotations

import random
import statistics
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import text
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner import cloud_rescue
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.action_board import BATCH, Schedule

#: Shortest, mean and longest duration (seconds) as measured by others on the real platform.
MEASURED = {"create_server": (11, 19, 21), "enable_rescue": (9, 14, 23)}


def measured(source, command):
    low, mean, high = MEASURED[command]
    short = source.random() < (high - mean) / (high - low)
    return source.uniform(low, mean) if short else source.uniform(mean, high)


class Fleet:
    """Machines that are created and then armed, against a clock that is moved in small steps."""

    def __init__(self, machines, duration, slow=False, first="create_server"):
        self.schedule = Schedule()
        if slow:
            self.schedule.learn(quick=False)
        self.duration = duration
        self.requests = 0
        self.lags = []
        self.todo = [(number / 12, number, first) for number in range(machines)]
        self.ends = {}
        self.armed = 0
        self.now = 0.0

    def run(self, machines):
        while self.armed < machines:
            self._start_what_is_due()
            due = self.schedule.due_at()
            if due is not None and due <= self.now:
                self._look()
            self.now += 0.1
            assert self.now < 300, "the fleet is never done"
        return self

    def _start_what_is_due(self):
        for entry in sorted(entry for entry in self.todo if entry[0] <= self.now):
            self.todo.remove(entry)
            _at, number, command = entry
            self.schedule.add((number, command), command, self.now)
            self.ends[number, command] = self.now + self.duration(command)

    def _look(self):
        batches = self.schedule.choose(self.now)
        self.requests += len(batches)
        for action in [action for batch in batches for action in batch]:
            if self.ends[action] > self.now:
                continue
            self.schedule.remove(action, finished_at=self.now)
            self.lags.append(self.now - self.ends[action])
            if action[1] == "create_server":
                self.todo.append((self.now + 0.3, action[0], "enable_rescue"))
            else:
                self.armed += 1


#: Machines, fleets that are played, requests at most and seconds too late at most, on average of all of them.
@pytest.mark.parametrize(
    ("machines", "fleets", "requests", "lag"),
    [(1, 60, 4.0, 2.0), (10, 8, 6, 2.3), (50, 4, 5, 3.5), (200, 2, 11, 5.5)],
)
def test_few_looks_learn_soon_what_has_ended(machines, fleets, requests, lag):
    played = []
    for seed in range(fleets):
        source = random.Random(seed)
        played.append(
            Fleet(machines, lambda command, source=source: measured(source, command), slow=True).run(machines)
        )
    assert statistics.mean(fleet.requests for fleet in played) <= requests
    assert statistics.mean(one for fleet in played for one in fleet.lags) < lag


def test_a_thousand_armings_are_looked_at_when_most_of_them_have_ended():
    source = random.Random(1)
    fleet = Fleet(1000, lambda command: measured(source, command), slow=True, first="enable_rescue").run(1000)
    assert fleet.requests <= 27
    assert statistics.mean(fleet.lags) < 10


@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_a_quick_platform_is_noticed(seconds):
    fleet = Fleet(50, lambda _command: seconds).run(50)
    assert fleet.now < 8
    assert fleet.requests <= 15


def test_a_quick_platform_may_be_known_before():
    fleet = Fleet(1, lambda _command: 0.01)
    fleet.schedule.learn(quick=True)
    assert fleet.run(1).now < 2


@pytest.mark.parametrize(
    ("status", "age", "learned"),
    [("off", 2, [True]), ("initializing", 2, [False]), ("off", 60, [False]), ("initializing", 60, [False])],
)
def test_only_a_server_that_is_young_and_ready_says_that_a_platform_is_quick(status, age, learned):
    fleet, said = object.__new__(cloud_rescue.CloudRescue), []
    fleet.machines = {"n1": {"boot_state_since": text.to_rfc3339(time.time() - age)}}
    fleet._found = {"n1": {"status": status}}
    fleet.board = SimpleNamespace(learn=lambda **given: said.append(given["quick"]))
    fleet._learn(["n1"])
    assert said == learned


def test_stuck_actions_do_not_keep_others_from_being_looked_at():
    schedule, now = Schedule(), 0.0
    for number in range(3 * BATCH):
        schedule.add(("stuck", number), "create_server", now)
    now = 100.0
    for _tick in range(10):
        schedule.choose(now)
        now += 5
    for number in range(8):
        schedule.add(("late", number), "create_server", now)
    seen, until = set(), now + 60
    while now < until:
        now = max(now + 0.1, schedule.due_at())
        seen.update(action for batch in schedule.choose(now) for action in batch)
    assert {("late", number) for number in range(8)} <= seen


def test_a_stuck_action_delays_no_look_at_others():
    """The window of one look is not as long as the age of the action that is due first says."""
    schedule, now, lags = Schedule(), 0.0, []
    schedule.learn(quick=False)
    for number in range(26):
        schedule.add(("creation", number), "create_server", now)
    ends = {("creation", number): 18.0 for number in range(25)}  # one of them is stuck
    added = 0
    while now < 300:
        if now >= 200 + added < 260:
            schedule.add(("arming", added), "enable_rescue", now)
            ends["arming", added] = now + 13
            added += 1
        if schedule.due_at() <= now:
            for action in [action for batch in schedule.choose(now) for action in batch]:
                if ends.get(action, 999) <= now:
                    schedule.remove(action, finished_at=now)
                    lags.append(now - ends[action])
        now += 0.25
    assert len(lags) == 25 + 60
    assert max(lags) <= 10


def test_a_quick_arming_in_a_crowd_is_no_quick_platform():
    schedule = Schedule()
    schedule.learn(quick=False)
    for number in range(100):
        schedule.add(number, "enable_rescue", 0.0)
    schedule.choose(9.7)
    schedule.remove(0, finished_at=9.7)
    for number in range(1, 100):
        schedule.remove(number)
    schedule.add(100, "enable_rescue", 100.0)
    assert schedule.due_at() >= 113


@pytest.mark.parametrize(("fleet", "looks"), [(1, 40), (50, 11)])
def test_short_actions_of_a_fleet_are_looked_at_together(fleet, looks):
    """A new one comes every half second, and each takes half a second."""
    schedule, now, ends, count = Schedule(), 0.0, {}, 0
    schedule.learn(quick=False)
    for number in range(fleet):
        schedule.add(("first", number), "reset_server", 0.0)
    for number in range(fleet):
        schedule.remove(("first", number))
    for step in range(200):
        now = step / 10
        if step % 5 == 0:
            schedule.add(step, "reset_server", now)
            ends[step] = now + 0.5
        due = schedule.due_at()
        if due is not None and due <= now:
            count += 1
            for action in [action for batch in schedule.choose(now) for action in batch]:
                if ends[action] <= now:
                    schedule.remove(action, finished_at=now)
    assert count <= looks


def test_nothing_pending_needs_no_look():
    schedule = Schedule()
    assert schedule.due_at() is None
    schedule.add(1, "create_server", 5.0)
    schedule.remove(1)
    assert schedule.due_at() is None
    assert len(schedule) == 0


@settings(max_examples=60, deadline=None)
@given(
    starts=st.lists(
        st.tuples(st.floats(0, 30), st.sampled_from(["create_server", "enable_rescue", "reset_server"])),
        min_size=1,
        max_size=80,
    )
)
def test_every_action_is_looked_at_again_and_again(starts):
    schedule, now = Schedule(), 30.0
    for number, (since, command) in enumerate(starts):
        schedule.add(number, command, since)
    looks = dict.fromkeys(range(len(starts)), 0)
    for _tick in range(60):
        due = schedule.due_at()
        assert due is not None
        assert due - now <= 20
        now = max(now, due)
        for batch in schedule.choose(now):
            assert 0 < len(batch) <= BATCH
            for number in batch:
                looks[number] += 1
        assert len(starts) > BATCH or schedule.due_at() > now
    assert min(looks.values()) >= 2


def looks(command, duration):
    """(Requests, seconds too late) for one action that takes so long."""
    schedule, now, count = Schedule(), 0.0, 0
    schedule.add(1, command, now)
    while True:
        due = schedule.due_at()
        if due <= now:
            schedule.choose(now)
            count += 1
            if now >= duration:
                return count, now - duration
        now = max(now + 0.01, due)


@pytest.mark.parametrize("duration", [0.2, 12, 30, 60, 120, 600])
def test_a_snapshot_takes_long_and_is_asked_about_seldom(duration):
    count, late = looks("create_image", duration)
    assert count <= 14 + duration / 10
    assert late <= max(10, duration / 6)
