# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a fleet is, by what was heard of it: its sum line, and its table at several sizes of a screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display, fleet_state

MB = 1_000_000


class Fleet(fleet_state.Fleet):
    """A fleet whose clock the test moves."""

    def __init__(self, names: list[str]) -> None:
        self.now = 0.0
        super().__init__(names, lambda: self.now)

    def write(self, name: str, rate: int, seconds: int, total: int | None) -> None:
        """A machine writes for so many seconds, from now on; the clock is where it was."""
        began = self.now
        self.state(name, boot_states.RUNNING_IMAGE_COMMAND)
        for second in range(seconds + 1):
            self.now = began + second
            self.measured(name, rate * second, total)
        self.now = began


def fifty() -> Fleet:
    """Fifty machines in the middle of their way: 12 through, 2 failed, 5 not in their rescue, 31 at work."""
    fleet = Fleet([f"node-{number}" for number in range(1, 51)])
    names = list(fleet.machines)
    for name in names:
        fleet.state(name, boot_states.BOOTING_TO_RESCUE)
    fleet.now = 30
    for place, name in enumerate(names[5:]):
        fleet.write(name, (12 + place % 9) * MB, 40, 1240 * MB)
        fleet.message(name, f"writing /dev/sda: {480 + place} MB, 41 % of the download, {12 + place % 9} MB/s")
    fleet.now = 70
    for name in names[5:7]:
        fleet.end(name, fleet_state.FAILED, f"{name}: the image command failed: it ended with exit code 1. Log: /x")
    for name in names[7:19]:
        fleet.state(name, boot_states.BOOTING_TO_REAL_OS)
    fleet.now = 72
    for name in names[7:19]:
        fleet.end(name, fleet_state.DONE, "proven")
    fleet.now = 70
    fleet.requests(96, 3600, 3504)
    return fleet


def test_the_sum_line_of_fifty():
    assert fifty().sum_line() == (
        "12/50 done · 31 writing 52 % (slowest node-24, 12 MB/s) · 5 waiting for the rescue · 2 failed · "
        "API 96 of 3600 · about 65 s left"
    )


def test_nothing_is_guessed():
    fleet = Fleet(["a", "b"])
    assert fleet.sum_line() == "0/2 done · 2 being looked at"
    fleet.state("a", boot_states.RUNNING_IMAGE_COMMAND)
    fleet.measured("a", 0, None)
    assert fleet.sum_line() == "0/2 done · 1 writing · 1 being looked at", "one look makes no rate"
    fleet.now = 10
    fleet.measured("a", 50 * MB, None)
    assert fleet.sum_line() == "0/2 done · 1 writing (5.0 MB/s) · 1 being looked at", "an unknown size makes no share"
    assert fleet.left() is None
    fleet.state("b", boot_states.RUNNING_IMAGE_COMMAND)
    assert fleet.sum_line() == "0/2 done · 2 writing (a, 5.0 MB/s)", "one rate of two is not the slowest"


def test_a_rate_falls_while_nothing_comes_and_begins_again_with_another_count():
    fleet = Fleet(["a"])
    fleet.write("a", 10 * MB, 10, 1000 * MB)
    fleet.now = 10
    machine = fleet.machines["a"]
    assert machine.rate(10) == 10 * MB
    assert machine.left(10) == 90
    assert machine.rate(20) == 5 * MB
    fleet.measured("a", 5 * MB, 10 * MB)
    assert (machine.rate(10), machine.share()) == (None, 0.5)
    fleet.state("a", boot_states.BOOTING_TO_REAL_OS)
    assert (machine.done, machine.share(), machine.rate(30)) == (None, None, None)


def test_the_time_left_is_that_of_machines_that_are_through():
    fleet = Fleet(["a", "b", "c"])
    fleet.write("a", 10 * MB, 10, 100 * MB)
    fleet.write("b", 10 * MB, 10, 400 * MB)
    fleet.write("c", 10 * MB, 10, 200 * MB)
    fleet.now = 10
    assert fleet.left() == (30, "of writing left"), "how long a system takes to boot is not known yet"
    assert fleet.sum_line().endswith("about 30 s of writing left")
    fleet.state("a", boot_states.BOOTING_TO_REAL_OS)
    fleet.now = 30
    fleet.measured("b", 300 * MB, 400 * MB)
    fleet.measured("c", 200 * MB, 200 * MB)
    fleet.end("a", fleet_state.DONE, "proven")
    seconds, words = fleet.left() or (0, "")
    assert words == "left"
    assert 20 < seconds < 40
    fleet.end("b", fleet_state.FAILED, "b: x")
    fleet.end("c", fleet_state.LATE, "c: x")
    assert fleet.sum_line() == "1/3 done · 1 late · 1 failed"


def test_after_its_last_byte_a_machine_writes_no_more():
    """It flushes, grows file systems and makes a seed for as long as it likes, at 100 %."""
    fleet = Fleet(["a", "b", "c"])
    for name in fleet.machines:
        fleet.state(name, boot_states.RUNNING_IMAGE_COMMAND)
    fleet.measured("a", 10 * MB, 100 * MB)
    fleet.measured("b", 0, 100 * MB)
    assert fleet.sum_line() == "0/3 done · 3 writing 3 %", "c has given nothing yet, and so has done nothing"
    fleet.now = 10
    fleet.measured("a", 100 * MB, 100 * MB)
    fleet.measured("b", 20 * MB, 100 * MB)
    assert fleet.sum_line() == "0/3 done · 3 writing 40 % (b, 2.0 MB/s)", "a is not the slowest one, nor the quickest"
    fleet.measured("a", None, None)
    fleet.measured("c", 0, 100 * MB)
    assert fleet.sum_line() == "0/3 done · 3 writing 40 % (b, 2.0 MB/s)", "what was written stays written"
    fleet.now = 60
    for name in ("b", "c"):
        fleet.measured(name, 100 * MB, 100 * MB)
    assert fleet.sum_line() == "0/3 done · 3 writing 100 %", "how long the rest takes is not known"
    fleet.state("a", boot_states.BOOTING_TO_REAL_OS)
    fleet.state("a", boot_states.OPERATING_SYSTEM_RUNNING)
    fleet.now = 70
    fleet.end("a", fleet_state.DONE, "proven")
    assert fleet.sum_line() == "1/3 done · 2 writing 100 % · about 50 s left", "as a after its last byte"
    fleet.now = 100
    assert fleet.sum_line() == "1/3 done · 2 writing 100 % · about 20 s left"
    fleet.now = 130
    assert fleet.sum_line() == "1/3 done · 2 writing 100 %"


def test_no_time_is_shown_that_machines_have_outlived():
    """As on two cores with fifty machines: the first one took 43 s, and the next ones three times as long."""
    fleet = Fleet([f"node-{number}" for number in range(1, 21)])
    first, second, *others = fleet.machines
    for name in fleet.machines:
        fleet.state(name, boot_states.BOOTING_TO_RESCUE)
    fleet.now = 40
    fleet.end(first, fleet_state.DONE, "proven")
    assert fleet.left() is None, "one of twenty had everything to itself"
    fleet.now = 120
    fleet.end(second, fleet_state.DONE, "proven")
    assert fleet.left() is None, "all that are left have taken longer than both"
    for name in others[:-1]:
        fleet.now += 2
        fleet.end(name, fleet_state.DONE, "proven")
    assert fleet.left() is None, "the last one took longer than all others"
    fleet.state(others[-1], boot_states.RUNNING_IMAGE_COMMAND)
    assert fleet.left() is None, "no machine said when it began that"


def test_the_time_left_is_that_of_machines_that_took_longer():
    fleet = Fleet(["a", "b", "c", "d"])
    for place, name in enumerate(fleet.machines):
        fleet.now = 0 if place < 3 else 25
        fleet.state(name, boot_states.BOOTING_TO_RESCUE)
    for name, fleet.now in (("a", 30), ("b", 70), ("c", 80)):
        fleet.end(name, fleet_state.DONE, "proven")
    assert fleet.left() == (20, "left"), "of 30, 70 and 80 s, the last two are longer than the 55 s of d"
    fleet.now = 100
    assert fleet.left() == (5, "left")
    fleet.now = 200
    assert fleet.left() is None


def test_others_than_the_machines_of_the_task_are_not_heard():
    fleet = Fleet(["a"])
    assert not fleet.state("b", boot_states.INITIALIZING)
    assert not fleet.state("a", "Dreaming")
    fleet.message("b", "x")
    fleet.measured("b", 1, 2)
    assert not fleet.end("b", fleet_state.DONE, "x")
    assert fleet.end("a", fleet_state.DONE, "x")
    assert not fleet.end("a", fleet_state.FAILED, "y")
    assert (list(fleet.machines), fleet.sum_line()) == (["a"], "1/1 done")


@pytest.mark.parametrize("width", [80, 120])
def test_a_frame_of_fifty_machines(width):
    fleet = fifty()
    lines = display.rows(fleet, width - 1, 22, fleet.now)
    print("\n".join(lines))
    assert len(lines) == 22
    assert max(map(display.cells, lines)) < width
    assert lines[0].startswith("12/50 done · 31 writing ")
    head = next(place for place, line in enumerate(lines) if line.startswith("machine"))
    table = lines[head + 1 :]
    assert [line.split()[:2] for line in table[:2]] == [["node-6", "FAILED"], ["node-7", "FAILED"]]
    assert "the image command failed: it ended with" in table[0]
    assert [line.split()[0] for line in table[2:7]] == [f"node-{number}" for number in range(1, 6)]
    assert "writing" in table[7]
    assert table[-1] == f"and {38 - (len(table) - 1)} more"


def test_failures_never_take_the_whole_screen():
    fleet = Fleet([f"n{number}" for number in range(40)])
    for number in range(30):
        fleet.end(f"n{number}", fleet_state.FAILED, "broken")
    lines = display.rows(fleet, 79, 12, 1)
    assert sum("FAILED" in line for line in lines) == 5
    assert sum("looked at" in line for line in lines if line.startswith("n")) == 4
    assert lines[-1] == "and 31 more"


def test_a_fleet_that_is_through_is_its_sum():
    fleet = Fleet(["a"])
    fleet.end("a", fleet_state.DONE, "x")
    assert display.rows(fleet, 79, 20, 1) == ["1/1 done"]


@given(st.text(), st.integers(0, 40))
def test_what_is_cut_fits(text, width):
    assert display.cells(display.cut(text, width)) <= width
    assert display.cells(display.cut_within(text, width)) <= width


@given(st.integers(8, 60), st.integers(60, 200), st.integers(1, 60), st.text(max_size=300))
def test_a_frame_fits_its_screen_with_any_text_of_machines(height, width, count, text):
    fleet = Fleet([f"machine-{number}" * 3 for number in range(count)])
    for place, name in enumerate(fleet.machines):
        fleet.message(name, text)
        if place % 3 == 0:
            fleet.write(name, 10**9, 3, 10**15)
        if place % 4 == 0:
            fleet.end(name, fleet_state.FAILED, text)
    lines = display.rows(fleet, width, height, 3)
    assert len(lines) <= height
    assert max(map(display.cells, lines)) <= width
    assert not [one for line in lines for one in line if ord(one) < 32 or 127 <= ord(one) < 160]


@pytest.mark.parametrize(("seconds", "text"), [(0, "5 s"), (33, "35 s"), (89, "90 s"), (240, "4 min")])
def test_estimates_are_rough(seconds, text):
    assert fleet_state.roughly(seconds) == text


def test_names_of_a_fleet_are_cut_where_they_are_alike():
    names = [f"prod-cluster-fsn1-worker-{number:02}" for number in range(1, 5)]
    assert [display.cut_within(name, 18) for name in names] == [
        f"prod-clu…worker-{number:02}" for number in range(1, 5)
    ]
    assert display.cut_within("node-1", 18) == "node-1"
