# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import from_rfc3339, to_rfc3339

EPOCHS = st.integers(min_value=0, max_value=4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000)


@given(EPOCHS)
def test_rfc3339_round_trip_keeps_the_millisecond(epoch):
    assert from_rfc3339(to_rfc3339(epoch)) == pytest.approx(epoch, abs=0.0011)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1970-01-01T00:00:01.500Z", 1.5),
        ("1970-01-01T00:00:01.500z", 1.5),
        ("1970-01-01T01:00:00+01:00", 0.0),
    ],
)
def test_from_rfc3339(text, epoch):
    assert from_rfc3339(text) == epoch


@pytest.mark.parametrize("text", ["", "yesterday", "1970-01-01T00:00:00", "Z"])
def test_from_rfc3339_refuses(text):
    with pytest.raises(ValueError):
        from_rfc3339(text)


def test_timeline_durations_add_up_without_a_gap():
    clock = iter([100.0, 103.25, 122.5, 123.0]).__next__
    timeline = boot_states.Timeline("n1", clock=clock)
    timeline.to(boot_states.INITIALIZING)
    timeline.to(boot_states.ENABLING_RESCUE)
    timeline.to(boot_states.BOOTING_TO_RESCUE)
    assert [(step["from"], step["to"], step["seconds"]) for step in timeline.transitions] == [
        ("", "Initializing", 3.25),
        ("Initializing", "EnablingRescue", 19.25),
        ("EnablingRescue", "BootingToRescue", 0.5),
    ]
    assert sum(step["seconds"] for step in timeline.transitions) == 23.0
    assert timeline.result()["boot_state_since"] == "1970-01-01T00:02:03.000Z"


def test_timeline_continues_another_step():
    first = boot_states.Timeline("n1", since=10.0, clock=lambda: 12.0)
    first.to(boot_states.INITIALIZING)
    carried = first.result()
    since = from_rfc3339(carried["boot_state_since"])
    second = boot_states.Timeline("n1", carried["boot_state"], since, clock=lambda: 20.0)
    second.to(boot_states.ENABLING_RESCUE)
    assert second.transitions[0]["seconds"] == 8.0


def test_entering_the_present_state_records_nothing():
    timeline = boot_states.Timeline("n1", boot_states.INITIALIZING, since=1.0, clock=lambda: 9.0)
    timeline.to(boot_states.INITIALIZING)
    assert timeline.transitions == []
    assert timeline.since == 1.0


def test_a_state_that_was_found_is_no_transition():
    clock = iter([100.0, 105.0]).__next__
    timeline = boot_states.Timeline("n1", since=1.0, clock=clock)
    timeline.found(boot_states.BOOTING_TO_RESCUE)
    timeline.to(boot_states.RUNNING_IMAGE_COMMAND)
    assert [(step["from"], step["seconds"]) for step in timeline.transitions] == [("BootingToRescue", 5.0)]


def test_a_clock_that_goes_back_gives_no_negative_duration():
    timeline = boot_states.Timeline("n1", since=50.0, clock=lambda: 40.0)
    timeline.to(boot_states.PROVISIONING_FAILED)
    assert timeline.transitions[0]["seconds"] == 0.0


def test_unknown_states_are_refused():
    with pytest.raises(ValueError, match="'Booting'"):
        boot_states.Timeline("n1", "Booting")
    with pytest.raises(ValueError, match="'Done'"):
        boot_states.Timeline("n1").to("Done")
    with pytest.raises(ValueError, match="'Lost'"):
        boot_states.Timeline("n1").found("Lost")


def test_a_long_wait_is_shown_after_ten_seconds_then_once_a_minute_and_not_at_its_end():
    wait = boot_states.LongWait("waiting for the rescue", 100.0)
    lines = {second: wait.line(second, "no SSH\nserver answers") for second in range(102)}
    assert [second for second, line in lines.items() if line] == [10, 70]
    assert lines[70] == "waiting for the rescue, 70 of at most 100 s: no SSH server answers"
