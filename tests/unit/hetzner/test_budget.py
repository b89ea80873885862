# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget: what headers say, what time brings back, and the arithmetic of a plan."""

from __future__ import annotations

import math

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
    budget.answered({}, budget.sent())
    budget.exhausted()
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
        "creating 1000 machines: at most 3100 API requests, 8 at a time, about 78 s; "
        "at least 500 of 3600 an hour will be left"
    )
    budget, _clock = known(1800)
    assert budget.outlook(3100, "work", 8, 0.2) == (
        "work: at most 3100 API requests, 8 at a time, slowed down for the limit, about 22 min; "
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
