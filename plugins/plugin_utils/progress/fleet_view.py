# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a fleet is shown while a task runs: one table on a terminal, a line now and then elsewhere, or single lines.

A worker of Ansible has no terminal from ansible-core 2.19 on, and all that it prints is printed by the main process.
So the table is made here and printed as text that moves the cursor; the terminal is only asked for its size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from ansible import constants as C  # noqa: N812

from ..text import one_line
from . import fleet_table
from .fleet_state import AT, DONE, FAILED, LATE, Fleet

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
#: What stands in a run that no person watches at a terminal, although it may have one.
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
            fd = os.open(f"/proc/{run}/fd/{stream}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        terminal = cls(fd)
        width, height = terminal.size()
        if os.isatty(fd) and width >= fleet_table.LEAST_WIDTH and height >= fleet_table.LEAST_HEIGHT:
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
        """Forget it."""
        os.close(self._fd)


class Shown:
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
        """``say``: what prints a text, as ``Display.display`` takes it. ``states``: single lines tell states, too."""
        self.fleet = Fleet(names, clock)
        self.mode = mode or (FLEET if len(names) >= FLEET_FROM else LINES)
        self._say, self._states, self._clock = say, states, clock
        self._terminal = terminal if self.mode == FLEET else None
        self._table: list[str] = []
        self._drawn = (-1, float("-inf"))
        self._line_at = clock()
        self._last = ""
        #: Called before something is shown, when what is heard must be fetched.
        self.feed: Callable[[], None] = lambda: None

    def aside(self, speak: Callable[[], None]) -> None:
        """Let something be printed that is no part of the table."""
        if self._table:
            self._print(fleet_table.erase(self._height()))
            self._table, self._drawn = [], (-1, float("-inf"))
        speak()

    def state(self, name: str, state: str) -> None:
        """A machine is in another boot state."""
        if self.fleet.state(name, state) and self._states and self.mode == LINES:
            self.aside(lambda: self._say(f"{name}: {AT[state][0]}"))

    def message(self, name: str, text: str) -> None:
        """A machine says where it is."""
        self.fleet.message(name, text)
        if self.mode == LINES:
            self.aside(lambda: self._say(f"{name}: {text}"))

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
        """Time has passed."""
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
        if width < fleet_table.LEAST_WIDTH or height < fleet_table.LEAST_HEIGHT:
            self._drawn = (self.fleet.version, now)
            return
        # A line that fills the last column would wrap on some terminals, one below the last line would scroll.
        lines = fleet_table.rows(self.fleet, width - 1, height - 2, now)
        self._print(fleet_table.draw(lines, self._height()))
        self._table, self._drawn = lines, (self.fleet.version, now)

    def _height(self) -> int:
        """Lines of the screen that the table takes now; lines wrap when the screen has become narrower."""
        width, height = self._terminal.size() if self._terminal else (0, 0)
        taken = sum(-(-max(1, fleet_table.cells(line)) // (width or 80)) for line in self._table)
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
    is printed to a pipe until there are 8 KiB of it, which is too late for a line that tells the present.
    """
    if for_programs():
        return True, Terminal.of(_STDERR, run)
    if C.DEFAULT_STDOUT_CALLBACK == "awx_display":
        return False, None
    terminal = Terminal.of(_STDOUT, run)
    if terminal is not None or mode != FLEET:
        return False, terminal
    return not _is_terminal(_STDOUT, run), Terminal.of(_STDERR, run)


def _is_terminal(stream: int, run: int) -> bool:
    try:
        fd = os.open(f"/proc/{run}/fd/{stream}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.isatty(fd)
    finally:
        os.close(fd)
