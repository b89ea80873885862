# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All machines at once: each has a thread, and only the first thread prints and gets signals."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import types

import pytest

from ansible_collections.kubenode.provision.plugins.plugin_utils.progress import display


@pytest.fixture
def spoken(monkeypatch) -> list[tuple[str, bool]]:
    """What was said, and whether the first thread said it."""
    spoken: list[tuple[str, bool]] = []

    def say(text: str, **_more: object) -> None:
        spoken.append((text, threading.current_thread() is threading.main_thread()))

    for name in ("display", "warning", "v", "vvv"):
        monkeypatch.setattr(display._display, name, say)
    return spoken


def test_all_machines_go_at_once_and_results_keep_their_order():
    all_here = threading.Barrier(5)
    results = display.each(range(5), lambda number: (all_here.wait(30), number * 2)[1])
    assert results == [0, 2, 4, 6, 8]
    assert display.each([], str) == []


def test_one_that_raises_is_its_own_result(spoken):
    def work(number: int) -> int:
        return 10 // number

    results = display.each([1, 0, 2], work)
    assert (results[0], results[2]) == (10, 5)
    assert isinstance(results[1], ZeroDivisionError)
    assert "ZeroDivisionError" in spoken[0][0]


def test_what_threads_say_comes_from_the_first_one_and_before_the_end(spoken):
    def work(name: str) -> None:
        display.progress(name, "works")
        display.warning(f"{name} is slow")

    display.each(["a", "b"], work)
    assert sorted(spoken) == sorted((text, True) for name in "ab" for text in (f"{name}: works", f"{name} is slow"))
    display.progress("c", "alone")
    assert spoken[-1] == ("c: alone", True)


def test_only_the_first_thread_gets_signals():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    (blocked,) = display.each([1], lambda _number: signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    assert {signal.SIGINT, signal.SIGTERM} <= set(blocked)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_threads_do_not_hold_a_worker_that_has_to_end():
    (daemon,) = display.each([1], lambda _number: threading.current_thread().daemon)
    assert daemon


def test_a_worker_whose_run_was_killed_before_it_came_so_far_does_nothing(monkeypatch):
    """Between the fork and the first machine are seconds on a busy host."""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: types.SimpleNamespace(pid=os.getpid()))
    done: list[int] = []
    with pytest.raises(SystemExit, match="the run is gone"):
        display.each([1], done.append)
    assert done == []


def test_a_worker_whose_run_was_killed_ends(monkeypatch):
    """The run is a child of ours that begins a worker and is killed."""
    monkeypatch.setattr(display, "_LOOK_EVERY", 0.05)
    ended, tell = os.pipe()
    run = os.fork()
    if run == 0:
        if os.fork() == 0:
            try:
                display.each([1], lambda _number: (os.write(tell, b"begun"), threading.Event().wait()))
            except SystemExit as exc:
                os.write(tell, str(exc).encode())
            os._exit(0)
        signal.pause()
    os.close(tell)
    with os.fdopen(ended, "rb", buffering=0) as worker:
        assert worker.read(5) == b"begun"
        os.kill(run, signal.SIGKILL)
        os.waitpid(run, 0)
        assert worker.read(99) == b"the run is gone"
