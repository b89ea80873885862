# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which errors are tried again, which are looked into first, which are final; and how pauses grow."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.api_failures import (
    AGAIN,
    FINAL,
    LOOK_FIRST,
    ApiError,
    Backoff,
    FleetError,
    NoAnswer,
    verdict,
)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (429, "rate_limit_exceeded", AGAIN),
        (429, "http_429", AGAIN),
        (409, "conflict", AGAIN),
        (423, "locked", AGAIN),
        (423, "protected", FINAL),
        (409, "uniqueness_error", FINAL),
        (412, "resource_unavailable", FINAL),
        (422, "invalid_input", FINAL),
        (401, "unauthorized", FINAL),
        (404, "not_found", FINAL),
        (500, "server_error", LOOK_FIRST),
        (502, "http_502", LOOK_FIRST),
        (503, "unavailable", LOOK_FIRST),
        (504, "timeout", LOOK_FIRST),
    ],
)
def test_verdict_of_answers(status, code, expected):
    assert verdict(ApiError(status, code, "text")) == expected


def test_verdict_without_an_answer():
    assert verdict(NoAnswer("refused", sent=False)) == AGAIN
    assert verdict(NoAnswer("cut", sent=True)) == LOOK_FIRST
    assert verdict(FleetError("token")) == FINAL


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_pauses_stay_within_their_bounds(seed, tries):
    backoff = Backoff(first=1.0, factor=2.0, cap=8.0, rng=random.Random(seed))
    for number in range(tries):
        whole = min(8.0, 2.0**number)
        assert whole / 2 <= backoff.pause() <= whole
