# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a running task says to the user, besides its result.

A worker of Ansible dies at once when Ctrl-C is pressed. If that happened while it held the lock of the queue to the
main process, the main process would wait for ever. So signals wait until a message is through, and while machines have
threads of their own, only the first thread hears signals and speaks.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ansible.utils.display import Display

_display = Display()
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Seconds between two looks whether the run is still there.
_LOOK_EVERY = 1.0
#: What threads have to say; None while there are none.
_said: queue.SimpleQueue[Callable[[], None] | None] | None = None

Machine = TypeVar("Machine")
Result = TypeVar("Result")


def log_line(machine: str, line: str) -> None:
    """A line of the image command's log, for C(-v)."""
    if _display.verbosity:
        _say(lambda: _display.v(line, host=machine))


def detail(machine: str, line: str) -> None:
    """A line for who looks for a fault, for C(-vvv)."""
    if _display.verbosity > 2:
        _say(lambda: _display.vvv(line, host=machine))


def progress(machine: str, message: str) -> None:
    """A line that everybody sees."""
    _say(lambda: _display.display(f"{machine}: {message}"))


def warning(message: str) -> None:
    """A warning."""
    _say(lambda: _display.warning(message))


def each(machines: Sequence[Machine], work: Callable[[Machine], Result]) -> list[Result | Exception]:
    """Do the work for all machines at once, one thread each; the results, or what was raised, in the same order.

    A worker whose run was killed ends: the next run over these machines must not find it at work.
    """
    global _said
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

    # Daemons, since a worker that was told to end must not wait for machines.
    threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(len(machines))]
    _said = said
    try:
        with _whole():  # threads inherit what is blocked
            for thread in threads:
                thread.start()
        left = len(threads)
        while left:
            if os.getppid() != run:
                raise SystemExit("the run is gone")
            try:
                message = said.get(timeout=_LOOK_EVERY)
            except queue.Empty:
                continue
            if message is None:
                left -= 1
                continue
            with _whole():
                message()
    finally:
        _said = None
    return [results[place] for place in range(len(machines))]


def _say(message: Callable[[], Any]) -> None:
    if _said is not None:
        _said.put(message)
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
