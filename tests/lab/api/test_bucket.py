# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The token bucket, by its own clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.api.auth import Bucket


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


def test_burst_then_one_a_second():
    clock = Clock()
    bucket = Bucket(3600, 1.0, clock)
    assert all(bucket.take() for number in range(3600))
    assert not bucket.take()
    clock.now += 0.9
    assert not bucket.take()
    clock.now += 0.2
    assert bucket.take()
    assert not bucket.take()


def test_headers():
    clock = Clock()
    bucket = Bucket(100, 1.0, clock)
    assert bucket.headers() == {
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "100",
        "RateLimit-Reset": "1000000",
    }
    for _dummy in range(40):
        bucket.take()
    assert bucket.headers()["RateLimit-Remaining"] == "60"
    assert bucket.headers()["RateLimit-Reset"] == "1000040", "when the bucket is full, not when the next token comes"
    clock.now += 10
    assert bucket.headers()["RateLimit-Remaining"] == "70"


def test_drain():
    clock = Clock()
    bucket = Bucket(100, 1.0, clock)
    bucket.drain(2)
    assert [bucket.take(), bucket.take(), bucket.take()] == [True, True, False]
    bucket.drain(50)
    assert not bucket.take(), "draining never fills"


@pytest.mark.parametrize(("limit", "refill"), [(0, 1.0), (-1, 1.0), (1, -1.0)])
def test_nonsense_is_refused(limit, refill):
    with pytest.raises(ValueError, match="must"):
        Bucket(limit, refill, Clock())


@given(
    st.integers(1, 50),
    st.floats(0, 5),
    st.lists(st.floats(-3, 10), max_size=60),
)
def test_never_more_than_limit_plus_refill(limit, refill, steps):
    clock = Clock()
    bucket = Bucket(limit, refill, clock)
    taken, forward = 0, 0.0
    for step in steps:
        clock.now += step
        forward += max(0.0, step)
        taken += bucket.take()
        assert 0 <= int(bucket.headers()["RateLimit-Remaining"]) <= limit
    assert taken <= limit + refill * forward + 1e-6
