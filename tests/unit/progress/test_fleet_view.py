# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a fleet is shown, and where: a table, sums or lines, on the stream that people read."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display, module_progress
from ansible_collections.kubenode.provision.plugins.plugin_utils.progress.fleet_state import DONE, FAILED, LATE

NAMES = [f"n{number}" for number in range(1, 6)]


class Screen:
    """In place of a terminal: its size is the test's."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.width, self.height, self.closed = width, height, False

    def size(self) -> tuple[int, int]:
        return self.width, self.height

    def close(self) -> None:
        self.closed = True


class Said:
    """What was printed, and a clock."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.now = 0.0

    def __call__(self, text: str, newline: bool = True, **_how: object) -> None:
        self.texts.append(text + "\n" if newline else text)

    def take(self) -> str:
        """What is new."""
        text, self.texts = "".join(self.texts), []
        return text


@pytest.fixture
def said() -> Said:
    return Said()


def shown(said: Said, mode: str | None, screen: Screen | None = None, names=NAMES, **more) -> display.FleetView:
    return display.FleetView(names, mode, said, terminal=screen, clock=lambda: said.now, **more)


def test_four_machines_are_a_fleet(said):
    assert shown(said, None, names=NAMES[:3]).mode == "lines"
    assert shown(said, None, names=NAMES[:4]).mode == "fleet"
    assert shown(said, "lines").mode == "lines"


def test_a_pipe_gets_a_sum_now_and_then_and_failures_at_once(said):
    show = shown(said, "fleet")
    for second in range(31):
        said.now = second
        show.state("n1", boot_states.BOOTING_TO_RESCUE if second < 20 else boot_states.RUNNING_IMAGE_COMMAND)
        show.message("n1", f"step {second}")
        show.tick()
    assert said.take() == (
        "0/5 done · 1 waiting for the rescue · 4 being looked at\n0/5 done · 1 writing · 4 being looked at\n"
    )
    show.end("n1", FAILED, "n1: the disk is\x1b[2J gone\nlook there")
    show.end("n2", LATE, "n2: the rescue is late")
    show.end("n3", DONE, "proven")
    show.end("n4", FAILED, "said before", known=True)
    assert said.take() == "n1: FAILED: the disk is\\x1b[2J gone look there\nn2: late: the rescue is late\n"
    show.finish()
    assert said.take() == "1/5 done · 1 being looked at · 1 late · 2 failed\n"


def test_lines_are_those_of_steps(said):
    show = shown(said, "lines")
    show.state("n1", boot_states.BOOTING_TO_RESCUE)
    show.message("n1", "writing")
    show.end("n1", DONE, "proven")
    show.end("n2", FAILED, "n2: broken")
    said.now = 100
    show.tick()
    show.finish()
    assert said.take() == "n1: writing\nn2: broken\n"


def test_lines_of_the_api_phase_are_states_and_failures(said):
    show = shown(said, "lines", states=True)
    show.state("n1", boot_states.INITIALIZING)
    show.state("n1", boot_states.INITIALIZING)
    show.end("n1", DONE, "created, powered off")
    show.end("n2", FAILED, "n2: no such type")
    assert said.take() == "n1: being created\nn2: no such type\n", "the result of the task tells the rest"


def test_none_is_nothing_but_failures(said):
    show = shown(said, "none", Screen(), states=True)
    show.state("n1", boot_states.INITIALIZING)
    show.message("n1", "writing")
    show.end("n1", DONE, "created")
    show.end("n2", FAILED, "broken")
    said.now = 100
    show.tick()
    show.finish()
    assert said.take() == "n2: FAILED: broken\n"


def test_a_table_is_drawn_over_the_one_before_and_other_lines_are_above_it(said):
    screen = Screen()
    show = shown(said, "fleet", screen)
    show.tick()
    first = said.take()
    assert first.count("\n") == 7
    assert "\x1b" not in first
    show.tick()
    assert said.take() == "", "not more than a few in a second"
    said.now = 0.6
    show.message("n1", "writing")
    show.tick()
    assert said.take().startswith("\x1b[7A\r\x1b[J0/5 done")
    show.aside(lambda: said("[WARNING]: x"))
    assert said.take() == "\x1b[7A\r\x1b[J[WARNING]: x\n"
    show.tick()
    assert said.take().startswith("0/5 done")
    # the user makes the window narrow: the head of the table takes two lines now
    screen.width = 60
    said.now = 5
    show.tick()
    assert said.take().startswith("\x1b[8A\r\x1b[J0/5 done")
    show.finish()
    assert said.take() == "\x1b[7A\r\x1b[J0/5 done · 5 being looked at\n"
    assert screen.closed


def test_a_window_that_is_too_small_for_a_table_shows_none(said):
    screen = Screen(height=4)
    show = shown(said, "fleet", screen)
    show.tick()
    assert said.take() == ""


@pytest.mark.parametrize(
    ("callback", "programs"),
    [
        ("default", False), ("ansible.builtin.default", False), ("awx_display", False), ("ansible.posix.debug", False),
        ("community.general.yaml", False), ("ansible.posix.json", True), ("ansible.posix.jsonl", True), ("json", True),
        ("junit", True), ("my.own.machine", True),
    ],
)  # fmt: skip
def test_which_callbacks_print_for_programs(callback, programs):
    assert display.for_programs(callback) is programs


def test_the_terminal_of_a_process_is_found_by_its_stream():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 132, 0, 0))
    try:
        terminal = display.Terminal.of(slave, os.getpid(), {"TERM": "xterm"})
        assert terminal is not None
        assert terminal.size() == (132, 40)
        terminal.close()
        for environment in ({}, {"TERM": "dumb"}, {"TERM": "xterm", "CI": "true"}):
            assert display.Terminal.of(slave, os.getpid(), environment) is None
    finally:
        os.close(master)
        os.close(slave)
    reading, writing = os.pipe()
    assert display.Terminal.of(writing, os.getpid(), {"TERM": "xterm"}) is None
    os.close(reading)
    os.close(writing)
    assert display.Terminal.of(writing, os.getpid(), {"TERM": "xterm"}) is None


def test_threads_are_heard_by_the_view_in_the_first_thread(said):
    show = shown(said, "fleet", names=["a", "b"])

    def work(name: str) -> None:
        display.state(name, boot_states.RUNNING_IMAGE_COMMAND)
        display.progress(name, "writes")
        display.measured(name, 5, 10)
        display.requests(3, 3600, 3597)
        display.ended(name, DONE if name == "a" else FAILED, "at the end")

    display.each(["a", "b"], work, show)
    assert said.take() == "b: FAILED: at the end\n1/2 done · 1 failed · API 3 of 3600\n"
    assert show.fleet.machines["a"].message == "at the end"
    display.state("a", boot_states.INITIALIZING)  # no task of a fleet is at work: nothing listens
    assert said.take() == ""


def test_a_file_that_grows_is_reported_now_and_then(said, tmp_path):
    path = tmp_path / "image.partial"
    beat = module_progress.Beat(str(path), ("looks", "packs image"), said, clock=lambda: said.now)
    for second in range(50):
        said.now = second
        if second > 20:
            with path.open("ab") as file:
                file.truncate((second - 20) * 5_000_000)
        beat.tick()
    beat.finish()
    assert said.take() == "looks\npacks image: 50 MB, 5.0 MB/s\npacks image: 125 MB, 5.0 MB/s\n"
