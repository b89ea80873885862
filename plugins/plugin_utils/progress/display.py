# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user sees of a fleet while a task runs: a table on a terminal, a line now and then elsewhere, or many lines.

A worker of Ansible has no terminal from ansible-core 2.19 on, and the main process prints all that it says. So the
table is made here and printed as text that moves the cursor; the terminal is only asked for its size. The cursor always
rests below the table and is never hidden, and no setting of the terminal is changed: a run may end at any moment.
"""

from __future__ import annotations

import os
import queue
import signal
import textwrap
import threading
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ansible import constants as C  # noqa: N812
from ansible.utils.display import Display

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line

from ..node_image.run_server import pid_of_run
from ..report import report_files
from ..shown_warnings import warn
from .fleet_state import DONE, FAILED, LATE, WORDS, Fleet, Machine, percent, speed

FLEET, LINES, NONE = CHOICES = ("fleet", "lines", "none")
#: So many machines are a fleet.
FLEET_FROM = 4
#: Seconds between two sum lines, and between two tables.
LINE_EVERY, TABLE_EVERY = 15.0, 0.5
#: What prints for people on stdout. What any other callback prints there is for programs.
_FOR_PEOPLE = frozenset([
    "actionable", "awx_display", "counter_enabled", "debug", "default", "dense", "diy", "full_skip", "minimal", "null",
    "oneline", "selective", "skippy", "stderr", "tree", "unixy", "yaml",
])  # fmt: skip
#: Environment variables of a run that no person watches, although it may have a terminal.
_UNWATCHED = ("CI", "AWX_ISOLATED_DATA_DIR")
_STDOUT, _STDERR = 1, 2


class Terminal:
    """The terminal behind a stream of the main process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def of(cls, stream: int, run: int, environment: Mapping[str, str] | None = None) -> Terminal | None:
        """That of a process and its stream, when a table can be drawn there."""
        environment = os.environ if environment is None else environment
        if environment.get("TERM", "dumb") == "dumb" or any(environment.get(one) for one in _UNWATCHED):
            return None
        try:
            fd = _opened(stream, run)
        except OSError:
            return None
        terminal = cls(fd)
        width, height = terminal.size()
        if os.isatty(fd) and width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
            return terminal
        terminal.close()
        return None

    def size(self) -> tuple[int, int]:
        """Columns and lines; 0 when it is gone."""
        try:
            size = os.get_terminal_size(self._fd)
            return size.columns, size.lines
        except OSError:
            return 0, 0

    def close(self) -> None:
        os.close(self._fd)


class FleetView:
    """A task's machines, on their way to the user. Only the first thread calls it."""

    def __init__(
        self,
        names: Sequence[str],
        mode: str | None,
        say: Callable[..., None],
        *,
        states: bool = False,
        terminal: Terminal | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``say``: what prints a text, as ``Display.display`` takes it. ``states``: single lines report states, too."""
        self.fleet = Fleet(names, clock)
        self.mode = mode or (FLEET if len(names) >= FLEET_FROM else LINES)
        self._say, self._states, self._clock = say, states, clock
        self._terminal = terminal if self.mode == FLEET else None
        self._table: list[str] = []
        self._drawn = (-1, float("-inf"))
        self._line_at = clock()
        self._last = ""
        #: Called before something is shown, when what is heard must be fetched.
        self.feed: Callable[[], object] = lambda: None

    def aside(self, speak: Callable[[], None]) -> None:
        """Let something be printed that is no part of the table."""
        if self._table:
            self._print(erase(self._height()))
            self._table, self._drawn = [], (-1, float("-inf"))
        speak()

    def state(self, name: str, state: str) -> None:
        if self.fleet.state(name, state) and self._states and self.mode == LINES:
            self.aside(lambda: self._say(f"{name}: {WORDS[state].line}"))

    def message(self, name: str, text: str) -> None:
        self.fleet.message(name, text)
        if self.mode == LINES:
            self.aside(lambda: self._say(f"{name}: {text}"))

    def plan(self, text: str) -> None:
        """What is ahead of all machines."""
        if self.mode == FLEET:
            self.aside(lambda: self._say(text))

    def end(self, name: str, outcome: str, text: str, known: bool = False) -> None:
        """A machine is through with the task; ``known``: people have read why."""
        text = one_line(text.removeprefix(f"{name}: "), 2000)
        if not self.fleet.end(name, outcome, text) or known:
            return
        if self.mode == LINES and outcome != DONE:
            self.aside(lambda: self._say(f"{name}: {text}"))
        elif outcome == FAILED:
            self.aside(lambda: self._say(f"{name}: FAILED: {text}", color=C.COLOR_ERROR))
        elif outcome == LATE:
            self.aside(lambda: self._say(f"{name}: late: {text}"))

    def tick(self) -> None:
        self.feed()
        if self.mode != FLEET:
            return
        now = self._clock()
        if self._terminal is not None:
            version, at = self._drawn
            if now - at >= (TABLE_EVERY if version != self.fleet.version else 2 * TABLE_EVERY):
                self._draw(now)
        elif now - self._line_at >= LINE_EVERY:
            self._sum(now)

    def finish(self) -> None:
        """The task is over: the sum stays, the table goes."""
        self.feed()
        if self.mode == FLEET and self.fleet.machines:
            self.aside(lambda: None)
            if self.fleet.sum_line() != self._last:
                self._sum(self._clock())
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None

    def _sum(self, now: float) -> None:
        self._line_at, self._last = now, self.fleet.sum_line()
        self._say(self._last)

    def _draw(self, now: float) -> None:
        width, height = self._terminal.size() if self._terminal else (0, 0)
        if width < LEAST_WIDTH or height < LEAST_HEIGHT:
            self._drawn = (self.fleet.version, now)
            return
        # A line that fills the last column would wrap on some terminals, one below the last line would scroll.
        lines = rows(self.fleet, width - 1, height - 2, now)
        self._print(draw(lines, self._height()))
        self._table, self._drawn = lines, (self.fleet.version, now)

    def _height(self) -> int:
        """Lines of the screen that the table takes now; lines wrap when the screen has become narrower."""
        width, height = self._terminal.size() if self._terminal else (0, 0)
        taken = sum(-(-max(1, cells(line)) // (width or 80)) for line in self._table)
        return min(taken, height - 1) if height else taken

    def _print(self, text: str) -> None:
        self._say(text, newline=False, screen_only=True)


def for_programs(callback: str | None = None) -> bool:
    """Whether what the callback (default: this run's) prints on stdout is read by programs."""
    name = callback or C.DEFAULT_STDOUT_CALLBACK or "default"
    return str(name).rpartition(".")[2] not in _FOR_PEOPLE


def streams(mode: str, run: int) -> tuple[bool, Terminal | None]:
    """Whether progress goes to stderr, and the terminal that it goes to, if any.

    To stdout like everything that Ansible says, unless programs read it, or it is no terminal: Python keeps back what
    is printed to a pipe until there are 8 KiB of it, which is too late for a line about the present state.
    """
    if for_programs():
        return True, Terminal.of(_STDERR, run)
    if C.DEFAULT_STDOUT_CALLBACK == "awx_display":
        return False, None
    terminal = Terminal.of(_STDOUT, run)
    if terminal is not None or mode != FLEET:
        return False, terminal
    return not _is_terminal(_STDOUT, run), Terminal.of(_STDERR, run)


def _opened(stream: int, run: int) -> int:
    return os.open(f"/proc/{run}/fd/{stream}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)


def _is_terminal(stream: int, run: int) -> bool:
    try:
        fd = _opened(stream, run)
    except OSError:
        return False
    try:
        return os.isatty(fd)
    finally:
        os.close(fd)


# --- the table as lines of text (pure)


#: A screen with less room than this shows lines.
LEAST_WIDTH, LEAST_HEIGHT = 60, 8
_LONGEST_NAME = 24
_STATE, _FOR, _RATE, _LEFT = 9, 6, 9, 6
#: What is done: share and bytes, on a narrow screen the share alone.
_DONE, _SHARE, _WIDE = 18, 8, 100


def rows(fleet: Fleet, width: int, height: int, now: float) -> list[str]:
    """At most ``height`` lines of at most ``width`` columns: the sum, failures, then the slowest of those at work."""
    total = textwrap.wrap(fleet.sum_line(), width, max_lines=2, placeholder=" …") or [""]
    failed, busy = fleet.failures(), _slowest_first(fleet.busy(), now)
    if not failed and not busy:
        return total[:height]
    name = min(_LONGEST_NAME, max(7, *(cells(one.name) for one in failed + busy)), max(8, width // 4))
    room = max(1, height - len(total) - 1)
    shown = failed + busy
    if len(shown) > room:
        # Failures never take all the room.
        few = max(1, room - 1)
        kept = failed[: max(1, few - min(len(busy), few // 2))]
        shown = kept + busy[: few - len(kept)]
    lines = [_row(one, name, width, now) for one in shown]
    hidden = len(failed) + len(busy) - len(shown)
    if hidden:
        lines.append(f"and {hidden} more")
    head = ["machine", "state", "for", "done", "rate", "left", "last message"]
    return [*total, _columns(head, name, width), *lines][:height]


def cells(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(_cells_of(one) for one in text)


def cut(text: str, width: int) -> str:
    """The text, cut to so many columns."""
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for one in text:
        used += _cells_of(one)
        if used > width - 1:
            break
        kept.append(one)
    return "".join(kept) + "…" if width > 0 else ""


def cut_within(text: str, width: int) -> str:
    """The text, cut to so many columns in its middle: the names of a fleet differ at their ends."""
    if cells(text) <= width:
        return text
    end = text[-(width // 2) :]
    while cells(end) > width // 2:
        end = end[1:]
    return cut(text, width - cells(end)) + end


def minutes(seconds: float) -> str:
    """``0:41`` or ``1:02:03``."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def draw(lines: Sequence[str], before: int) -> str:
    """What draws a table over one of ``before`` lines right above the cursor."""
    return erase(before) + "".join(f"{line}\n" for line in lines)


def erase(before: int) -> str:
    """What takes a table away; the cursor is then where its first line began."""
    return f"\x1b[{before}A\r\x1b[J" if before else ""


def _slowest_first(machines: Sequence[Machine], now: float) -> list[Machine]:
    """First what is earlier on its way, then what has most time left, then what has stood there longest."""
    early = {state: place for place, state in enumerate(boot_states.ORDER)}
    return sorted(machines, key=lambda one: (early[one.state], -(one.left(now) or 0.0), one.since))


def _row(machine: Machine, name: int, width: int, now: float) -> str:
    share, rate, left = machine.share(), machine.rate(now), machine.left(now)
    done = ""
    if machine.done is not None and not machine.outcome:
        size = f"{machine.done // 10**6}" + (f"/{machine.total // 10**6}" if machine.total else "") + " MB"
        done = f"{percent(share)} {size}" if share is not None else size
        done = done if width >= _WIDE or share is None else percent(share)
    fields = [
        machine.name,
        machine.outcome.upper() or WORDS[machine.state].column,
        minutes((machine.ended or now) - machine.since),
        done,
        speed(rate) if rate is not None and not machine.outcome else "",
        minutes(left) if left is not None and not machine.outcome else "",
        machine.message.removeprefix(f"{machine.name}: "),
    ]
    return _columns(fields, name, width)


def _columns(fields: Sequence[str], name: int, width: int) -> str:
    """One line. A failure's message begins in the column of the numbers, as it has none."""
    widths = [name, _STATE, _FOR, _DONE if width >= _WIDE else _SHARE, _RATE, _LEFT]
    if not any(fields[3:6]):
        # Without numbers, the message has their room.
        widths = widths[:3]
        fields = [*fields[:3], fields[6]]
    line = ""
    for place, (text, room) in enumerate(zip(fields, widths, strict=False)):
        text = cut(text, room) if place else cut_within(text, room)
        gap = " " * (room - cells(text))
        line += (text + gap if not line or room == _STATE else gap + text) + " "
    return cut(f"{line} {fields[len(widths)]}".rstrip(), width)


def _cells_of(one: str) -> int:
    if unicodedata.combining(one) or unicodedata.category(one) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1


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
_show: FleetView | None = None

Member = TypeVar("Member")
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
        lambda: _display.display(f"{name}: {message}", stderr=for_programs()),
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
    _say(lambda: warn(message))


def view_of(names: Sequence[str], mode: str | None, states: bool = False) -> FleetView:
    """How the machines of a task are shown, for :func:`each`; see :class:`FleetView`."""
    mode = mode or (FLEET if len(names) >= FLEET_FROM else LINES)
    say, terminal = printer(mode)
    return FleetView(names, mode, say, states=states, terminal=terminal)


def printer(mode: str) -> tuple[Callable[..., None], Terminal | None]:
    """What prints progress of this mode where it goes, and the terminal it goes to, if any."""
    stderr, terminal = streams(mode, os.getppid())

    def say(text: str, **how: Any) -> None:
        _display.display(text, stderr=stderr, **how)

    return say, terminal


def each(
    machines: Sequence[Member], work: Callable[[Member], Result], show: View | None = None
) -> list[Result | Exception]:
    """Do the work for all machines at once, one thread each; the results, or what was raised, in the same order.

    A worker whose run was killed ends: the next run over these machines must not find it at work.
    """
    global _said, _show, _view
    run = pid_of_run()
    if os.getppid() != run:
        raise SystemExit("the run is gone")
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
    _show = show if isinstance(show, FleetView) else None
    try:
        with _whole():  # threads inherit what is blocked
            for thread in threads:
                thread.start()
        left = len(threads)
        while left:
            if os.getppid() != run:
                raise SystemExit("the run is gone")
            try:
                message = said.get(timeout=_LOOK_EVERY if show is None else TABLE_EVERY)
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


def _tell(news: Callable[[FleetView], None], otherwise: Callable[[], Any] | None = None) -> None:
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
