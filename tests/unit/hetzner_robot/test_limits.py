# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Robot's hourly limits: what is counted, what a 403 changes, and the arithmetic before the first reset."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_client import (
    HOLD,
    HOURLY,
    RESET,
    WINDOW,
    Limits,
    ResetLog,
    ResetPlan,
    route_of,
)
from tests.clock import Clock


def limits(resets=HOURLY[RESET]):
    clock = Clock(1000.0)
    return Limits(clock, resets=resets, rng=random.Random(1)), clock


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/server", "GET /server"),
        ("POST", "/server/321", "POST /server/{server}"),
        ("POST", "/reset/321", RESET),
        ("GET", "/boot/321/rescue/last", "GET /boot/{server}/rescue/last"),
        ("GET", "/key/aa:bb", "GET /key/{fingerprint}"),
    ],
)
def test_routes_are_named_as_robot_groups_them(method, path, route):
    assert route_of(method, path) == route


def test_the_hour_is_counted():
    count, clock = limits(resets=3)
    for _number in range(3):
        assert count.delay(RESET) == 0
        count.sent(RESET)
        clock.now += 10
    assert count.left(RESET) == 0
    assert count.delay(RESET) == WINDOW - 30
    clock.now += WINDOW - 30
    assert count.delay(RESET) == 0
    assert count.left(RESET) == 1


def test_resets_of_an_earlier_call_count_until_their_hour_is_over():
    count, clock = limits(resets=2)
    count.sent(RESET)
    count.sent(RESET, age=3000)
    assert count.delay(RESET) == WINDOW - 3000
    clock.now += WINDOW - 3000
    assert count.left(RESET) == 1


def test_routes_do_not_share_their_limit():
    count, _clock = limits(resets=1)
    count.sent(RESET)
    assert count.left(RESET) == 0
    assert count.left("POST /server/{server}") == 200
    assert count.left("GET /boot/{server}/rescue") == 500


def test_a_403_holds_the_route_for_everybody_and_then_one_goes_ahead():
    count, clock = limits()
    count.refused(RESET)
    held = count.held(RESET)
    assert HOLD[0] <= held <= HOLD[1]
    assert count.left(RESET) == 0
    assert count.delay("GET /server") == 0
    clock.now += held
    assert count.delay(RESET) == 0
    count.sent(RESET)
    # The next one waits for what the first is answered.
    assert count.delay(RESET) == HOLD[1]
    count.taken(RESET)
    assert count.delay(RESET) == 0


def test_a_window_shorter_than_the_pause_is_not_waited_out_twice():
    count, _clock = limits()
    count.refused(RESET, 5.0)
    assert count.held(RESET) == 5.0


@given(st.lists(st.integers(0, 2000), max_size=60), st.integers(1, 10))
def test_no_hour_ever_has_more_requests_than_it_may(pauses, hourly):
    count, clock = limits(resets=hourly)
    sent = []
    for pause in pauses:
        clock.now += max(pause, count.delay(RESET))
        count.sent(RESET)
        sent.append(clock.now)
    for end in sent:
        assert len([time for time in sent if end - WINDOW < time <= end]) <= hourly


@given(st.integers(0, 500), st.integers(0, 60), st.integers(0, 60))
def test_the_plan_adds_up(count, left, hourly):
    plan = ResetPlan(count, left, hourly)
    assert plan.fits == (count <= left)
    if hourly:
        # After so many hours all are sent; one hour less is too short.
        assert left + plan.hours * hourly >= count
        assert plan.hours == 0 or left + (plan.hours - 1) * hourly < count


def test_the_message_shows_the_arithmetic():
    assert ResetPlan(60, 40, 50).message == (
        "60 machines need a reset by the Robot API, which takes 50 an hour; 40 can be sent now, and the other 20 "
        "within about 1 h"
    )
    assert ResetPlan(3, 0, 0).message.endswith("0 can be sent now, and the other 3 never, with max_resets 0")


# --- the hour of other runs


def log_of(folder, wall, account="#ws+a@https://x"):
    return ResetLog(str(folder), account, wall)


def limits_with(log, resets=50):
    found = Limits(lambda: 1000.0, resets=resets)
    found.keep(log)
    return found


def test_the_resets_of_earlier_runs_count_for_an_hour(tmp_path):
    wall = Clock(1_800_000_000.0)
    first = limits_with(log_of(tmp_path, wall))
    for _number in range(40):
        first.leaves(RESET)
    first.leaves("POST /wol/{server}")
    wall.now += 600
    assert limits_with(log_of(tmp_path, wall)).left(RESET) == 10
    assert limits_with(log_of(tmp_path, wall, "#ws+b@https://x")).left(RESET) == 50, "another account"
    wall.now += 3001
    assert limits_with(log_of(tmp_path, wall)).left(RESET) == 50
    assert not [path for path in tmp_path.iterdir() if path.stat().st_mode & 0o077]


def test_a_refusal_shows_the_next_run_that_the_hour_is_used_up(tmp_path):
    wall = Clock(1_800_000_000.0)
    first = limits_with(log_of(tmp_path, wall))
    first.leaves(RESET)
    first.refused(RESET, 3600.0, 20)
    assert first.hourly(RESET) == 20
    wall.now += 1
    second = limits_with(log_of(tmp_path, wall))
    assert second.left(RESET) == 0
    assert "0 can be sent now" in ResetPlan(3, second.left(RESET), second.hourly(RESET)).message
    wall.now += 1800
    assert limits_with(log_of(tmp_path, wall)).left(RESET) == 10
    wall.now += 1800
    assert limits_with(log_of(tmp_path, wall)).left(RESET) == 50, "its word is over, and the usual limit holds again"


def test_the_limit_is_the_api_s_own_but_never_more_than_the_user_s():
    limits = Limits(lambda: 0.0, resets=30)
    limits.refused(RESET, 3600.0, 50)
    assert limits.hourly(RESET) == 30
    limits.refused(RESET, 3600.0, 5)
    assert limits.hourly(RESET) == 5
    limits.refused("GET /server", 3600.0, 300)
    assert limits.hourly("GET /server") == 300
    limits.refused("GET /server", 3600.0)
    assert limits.hourly("GET /server") == 300


def test_the_length_of_the_window_is_the_api_s_own_too():
    clock = Clock()
    limits = Limits(clock, rng=random.Random(1))
    for _number in range(5):
        limits.sent(RESET)
    limits.refused(RESET, 15.0, 5)
    limits.taken(RESET)
    assert limits.delay(RESET) == 15.0
    clock.now = 15.0
    assert (limits.delay(RESET), limits.left(RESET)) == (0.0, 5)


@pytest.mark.parametrize(
    "text",
    ["", "[", "null", "[1]", '{"sent": 1, "refused": 2}', '{"sent": ["x", true, 1e999, -1], "refused": [1, 0, 1]}',
     '{"sent": [], "refused": [1, 1e308, 1]}', '{"sent": [null], "refused": ["a", "b", "c"]}', "[" * 100000],
)  # fmt: skip
def test_a_file_that_is_none_counts_nothing_and_is_written_again(tmp_path, text):
    wall = Clock(1_800_000_000.0)
    log = log_of(tmp_path, wall)
    path = tmp_path / log._path.rpartition("/")[2]
    path.write_text(text)
    assert log.ages() == []
    log.sent()
    assert log.ages() == [0.0]


def test_a_folder_that_is_not_there_or_not_ours_stops_no_run(tmp_path):
    log = log_of(tmp_path / "none", Clock(1_800_000_000.0))
    log.sent()
    log.refused(50, 3600.0)
    assert log.ages() == []
