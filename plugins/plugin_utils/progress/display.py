# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a running task says to the user, besides its result.

A worker of Ansible dies at once when Ctrl-C is pressed. If that happened while it held the lock of the queue to the
main process, the main process would wait for ever. So signals wait until a message is through, and while machines have
threads of their own, only the first thread gets signals and prints.

Progress goes to stderr where stdout is for programs.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ansible.utils.display import Display

from ..report import report_files
from . import fleet_view

_display = Display()
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds between two looks whether the run is still there.
_LOOK_EVERY = 1.0
#: What threads have to say; None while there are none.
_said: queue.SimpleQueue[Callable[[], None] | None] | None = None


class View(Protocol):
    """What is shown while threads are at work."""

    def aside(self, speak: Callable[[], None]) -> None:
        """Let something be printed that is no part of it."""

    def tick(self) -> None:
        """Time has passed."""

    def finish(self) -> None:
        """All threads have ended."""


#: What is shown of these threads; the second one is the same when it is of a fleet.
_view: View | None = None
_show: fleet_view.FleetView | None = None

Machine = TypeVar("Machine")
Result = TypeVar("Result")


def log_line(name: str, line: str) -> None:
    """A line of the image command's log, for C(-v)."""
    if _display.verbosity:
        _say(lambda: _display.v(line, host=name))


def detail(name: str, line: str) -> None:
    """A line for who looks for a fault, for C(-vvv)."""
    if _display.verbosity > 2:
        _say(lambda: _display.vvv(line, host=name))


def progress(name: str, message: str) -> None:
    """Where a machine is: a line for every machine, unless its fleet is shown in another way."""
    _tell(
        lambda show: show.message(name, message),
        lambda: _display.display(f"{name}: {message}", stderr=fleet_view.for_programs()),
    )


def state(name: str, state: str) -> None:
    """A machine of a fleet has come into a boot state."""
    _tell(lambda show: show.state(name, state))


def measured(name: str, done: int | None, total: int | None) -> None:
    """A machine of a fleet has done so many bytes of so many; None: unknown, or at a step without bytes."""
    _tell(lambda show: show.fleet.measured(name, done, total))


def ended(name: str, outcome: str, message: str, known: bool = False) -> None:
    """A machine of a fleet is through with the task.

    ``outcome``: one of ``fleet_state``; ``known``: an earlier task said why it failed.
    """
    _tell(lambda show: show.end(name, outcome, message, known))


def requests(made: int, limit: int | None, remaining: int | None) -> None:
    """So many requests were made for a fleet; what the account's limit is and what is left of it, if known."""
    _tell(lambda show: show.fleet.requests(made, limit, remaining))


def warning(message: str) -> None:
    _say(lambda: _display.warning(message))


def view_of(names: Sequence[str], mode: str | None, states: bool = False) -> fleet_view.FleetView:
    """How the machines of a task are shown, for :func:`each`; see :class:`fleet_view.FleetView`."""
    mode = mode or (fleet_view.FLEET if len(names) >= fleet_view.FLEET_FROM else fleet_view.LINES)
    say, terminal = printer(mode)
    return fleet_view.FleetView(names, mode, say, states=states, terminal=terminal)


def printer(mode: str) -> tuple[Callable[..., None], fleet_view.Terminal | None]:
    """What prints progress of this mode where it goes, and the terminal it goes to, if any."""
    stderr, terminal = fleet_view.streams(mode, os.getppid())

    def say(text: str, **how: Any) -> None:
        _display.display(text, stderr=stderr, **how)

    return say, terminal


def each(
    machines: Sequence[Machine], work: Callable[[Machine], Result], show: View | None = None
) -> list[Result | Exception]:
    """Do the work for all machines at once, one thread each; the results, or what was raised, in the same order.

    A worker whose run was killed ends: the next run over these machines must not find it at work.
    """
    global _said, _show, _view
    run = os.getppid()
    results: dict[int, Result | Exception] = {}
    said: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def one(place: int) -> None:
        try:
            results[place] = work(machines[place])
        except Exception as exc:  # noqa: BLE001 - of one machine; the others go on
            results[place] = exc
            text = traceback.format_exc()
            said.put(lambda: _display.vvv(text))
        finally:
            said.put(None)

    # Daemons, since a worker that has to end must not wait for machines.
    threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(len(machines))]
    _said, _view = said, show
    _show = show if isinstance(show, fleet_view.FleetView) else None
    try:
        with _whole():  # threads inherit what is blocked
            for thread in threads:
                thread.start()
        left = len(threads)
        while left:
            if os.getppid() != run:
                raise SystemExit("the run is gone")
            try:
                message = said.get(timeout=_LOOK_EVERY if show is None else fleet_view.TABLE_EVERY)
            except queue.Empty:
                message = report_files.catch_up
            if message is None:
                left -= 1
                continue
            with _whole():
                message()
                if show is not None:
                    show.tick()
        if show is not None:
            with _whole():
                show.finish()
    finally:
        _said = _show = _view = None
    return [results[place] for place in range(len(machines))]


def _tell(news: Callable[[fleet_view.FleetView], None], otherwise: Callable[[], Any] | None = None) -> None:
    """Have the fleet's view take some news; without one, say something else or nothing."""
    show = _show
    if show is not None and _said is not None:
        _said.put(lambda: news(show))
    elif otherwise is not None:
        _say(otherwise)


def _say(message: Callable[[], Any]) -> None:
    if _said is not None:
        view = _view
        _said.put(message if view is None else lambda: view.aside(message))
        return
    with _whole():
        message()


@contextmanager
def _whole() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
