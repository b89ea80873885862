# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget: what headers say, what time brings back, and the arithmetic of a plan."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import Budget
from tests.clock import Clock


def headers(remaining, limit=3600):
    return {"RateLimit-Limit": str(limit), "RateLimit-Remaining": str(remaining), "RateLimit-Reset": "2000000000"}


def known(remaining, limit=3600):
    clock = Clock(1000.0)
    budget = Budget(clock)
    budget.answered(headers(remaining, limit), budget.sent())
    return budget, clock


def test_an_unknown_budget_delays_no_request():
    budget = Budget(Clock())
    assert not budget.known
    assert budget.delay() == 0
    assert budget.remaining() == math.inf
    assert budget.plan(10**6, 1, "work").possible


def test_requests_on_their_way_are_subtracted():
    budget, _clock = known(10)
    first = budget.sent()
    budget.sent()
    budget.answered(headers(9), first)
    assert budget.remaining() == 8


def test_an_older_answer_that_comes_later_gives_nothing_back():
    budget, _clock = known(10)
    first, second = budget.sent(), budget.sent()
    budget.answered(headers(8), second)
    budget.answered(headers(9), first)
    assert budget.remaining() == 8


def test_time_brings_requests_back_up_to_the_limit():
    budget, clock = known(3598)
    clock.now += 1
    assert budget.remaining() == 3599
    clock.now += 3600
    assert budget.remaining() == 3600


@pytest.mark.parametrize(("limit", "seconds"), [(3600, 1.0), (7200, 0.5), (36, 100.0)])
def test_empty_bucket_delays_until_one_request_came_back(limit, seconds):
    budget, clock = known(0, limit)
    assert budget.delay() == pytest.approx(seconds)
    clock.now += seconds
    assert budget.delay() == pytest.approx(0, abs=1e-6)


def test_a_429_without_headers_stops_the_sending():
    budget = Budget(Clock())
    mark = budget.sent()
    budget.answered({}, mark)
    budget.exhausted(mark)
    # half of what comes back is left to the other one
    assert budget.delay() == pytest.approx(2.0)


def test_a_refusal_halves_the_share_and_answers_raise_it():
    budget, clock = known(2)
    first, second = budget.sent(), budget.sent()
    budget.answered(headers(0), second)
    budget.exhausted(second)
    budget.answered(headers(0), first)
    budget.exhausted(first)  # on its way when the bucket ran dry
    clock.now += 2
    assert budget.remaining() == 1
    assert budget.delay() == pytest.approx(2.0, abs=0.1)
    for _answer in range(20):
        mark = budget.sent()
        budget.answered(headers(0), mark)
        budget.exhausted(mark)
    assert budget.delay() == pytest.approx(8.0, abs=0.1)
    for _answer in range(112):
        budget.answered(headers(0), budget.sent())
    assert budget.delay() == pytest.approx(1.0)


@pytest.mark.parametrize("value", ["", "many", "-1", None])
def test_nonsense_headers_change_nothing(value):
    budget, _clock = known(10)
    budget.answered({"RateLimit-Limit": value, "RateLimit-Remaining": value}, budget.sent())
    assert budget.limit == 3600
    assert budget.remaining() == 9


def test_plan_fits_paces_or_refuses():
    budget, _clock = known(20)
    assert budget.plan(20, 60, "work").fits
    paced = budget.plan(50, 60, "work")
    assert (paced.fits, paced.possible) == (False, True)
    assert "costs about 30 s" in paced.message
    refused = budget.plan(100, 60, "arming 40 machines")
    assert not refused.possible
    assert refused.message.startswith("arming 40 machines needs about 100 API requests, 20 of 3600 are left")
    assert "only 80 can be made within 60 s" in refused.message
    assert "Wait about 20 s" in refused.message


def test_the_outlook_of_a_fleet():
    budget, _clock = known(3600)
    assert budget.outlook(3100, "creating 1000 machines", 8, 0.2) == (
        "creating 1000 machines: at most 3100 API requests, 8 at a time; they take about 78 s; "
        "at least 500 of 3600 an hour will be left"
    )
    budget, _clock = known(1800)
    assert budget.outlook(3100, "work", 8, 0.2) == (
        "work: at most 3100 API requests, 8 at a time, slowed down for the limit; they take about 22 min; "
        "0 of 3600 an hour will be left"
    )
    assert Budget(lambda: 0.0).outlook(30, "work", 8, 0.2) == "work: at most 30 API requests, 8 at a time"


@given(
    remaining=st.integers(0, 5000),
    limit=st.integers(1, 5000),
    need=st.integers(0, 10000),
    seconds=st.integers(0, 4000),
)
def test_plan_agrees_with_itself(remaining, limit, need, seconds):
    budget, clock = known(remaining, limit)
    plan = budget.plan(need, seconds, "work")
    assert plan.possible or not plan.fits
    assert plan.fits == (need <= min(remaining, limit))
    clock.now += seconds
    if plan.possible and need <= limit:
        assert budget.remaining() >= need - max(0, min(remaining, limit)) - 1e-6


@given(st.lists(st.one_of(st.just("sent"), st.integers(0, 100), st.floats(0, 50)), max_size=40))
def test_remaining_never_exceeds_the_limit(events):
    budget, clock = known(50, 100)
    marks = []
    for event in events:
        if event == "sent":
            marks.append(budget.sent())
        elif isinstance(event, int):
            budget.answered(headers(event, 100), marks.pop() if marks else budget.sent())
        else:
            clock.now += event
        assert budget.remaining() <= 100
        assert budget.delay() >= 0


class Bucket:
    """A bucket that several controllers share; each always has eight requests that wait or are on their way."""

    def __init__(self, controllers: int, left: float, seed: int) -> None:
        self.clock, self.left, self.filled, self.refused = Clock(), left, 0.0, 0
        self.took = [0] * controllers
        self.chance = random.Random(seed)
        self.budgets = [Budget(self.clock) for _one in self.took]
        self.events: list[tuple] = []
        for number in range(8 * controllers):
            self.after(0.0, self.send, number % controllers, 1.0)

    def after(self, seconds: float, what: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self.events, (self.clock.now + seconds, self.chance.random(), what, arguments))

    def send(self, number: int, pause: float) -> None:
        delay = self.budgets[number].delay()
        if delay > 1e-6:
            self.after(delay, self.send, number, pause)
        else:
            self.after(self.chance.uniform(0.01, 0.05), self.take, number, pause, self.budgets[number].sent())

    def take(self, number: int, pause: float, mark: int) -> None:
        """The API takes a request or refuses it; ten a second come back."""
        self.left, self.filled = self.left + (self.clock.now - self.filled) * 10, self.clock.now
        taken = self.left >= 1
        self.left -= taken
        self.refused += not taken
        self.took[number] += taken
        self.after(self.chance.uniform(0.01, 0.05), self.answer, number, pause, mark, int(self.left), taken)

    def answer(self, number: int, pause: float, mark: int, left: int, taken: bool) -> None:
        self.budgets[number].answered(headers(left, 36000), mark)
        if taken:
            self.send(number, 1.0)
        else:
            self.budgets[number].exhausted(mark)
            self.after(pause * self.chance.uniform(0.5, 1), self.send, number, min(15, pause * 1.6))

    def run(self, seconds: float) -> None:
        while self.events[0][0] < seconds:
            self.clock.now, _order, what, arguments = heapq.heappop(self.events)
            what(*arguments)


@pytest.mark.parametrize("seed", range(10))
def test_two_controllers_do_not_meet_at_each_token(seed):
    """Nearly all that comes back is used, by both, and few requests are refused."""
    bucket = Bucket(2, 30, seed)
    bucket.run(10)
    assert bucket.refused <= 20
    bucket.run(100)
    assert sum(bucket.took) >= 0.95 * (30 + 100 * 10)
    assert bucket.refused <= 0.08 * sum(bucket.took)
    assert min(bucket.took) >= 0.2 * sum(bucket.took)


def test_a_controller_that_is_alone_uses_all_that_comes_back():
    bucket = Bucket(1, 30, 0)
    bucket.run(100)
    assert bucket.refused == 0
    assert bucket.took[0] >= 0.98 * (30 + 100 * 10)


EVENTS = st.tuples(st.sampled_from(["send", "take", "answer"]), st.integers(0, 1))


@settings(max_examples=300)
@given(st.integers(1, 3), st.lists(EVENTS, min_size=12, max_size=60))
def test_no_order_of_answers_overdraws_the_bucket(left, events):
    """The API takes requests and answers them in any order; time does not move, so that nothing comes back."""
    budget, _clock = known(left)
    underway, taken = [], []
    for event, which in events:
        if event == "send" and budget.delay() == 0:
            underway.append(budget.sent())
        elif event == "take" and underway:
            left -= 1
            taken.append((underway.pop(which % len(underway)), left))
        elif event == "answer" and taken:
            mark, remaining = taken.pop(which % len(taken))
            budget.answered(headers(remaining), mark)
        assert left >= 0
