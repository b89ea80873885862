# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action plugins in front of modules that make one large file do: tell how it grows on the controller."""

from __future__ import annotations

import abc
import contextvars
import os
import time
from collections.abc import Callable
from typing import Any

from ansible.plugins.action.normal import ActionModule as NormalAction

from ..text import one_line
from . import display, fleet_state, fleet_view


class Beat:
    """A line now and then about one file; several tasks may do so at once, so there is never a table."""

    def __init__(
        self,
        path: str,
        words: tuple[str, str],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``words``: what happens before the file is there, and what while it grows."""
        self._path, self._words, self._say, self._clock = path, words, say, clock
        self._at = clock()
        self._file = fleet_state.Machine(path, self._at)

    def aside(self, speak: Callable[[], None]) -> None:
        """Let something be printed."""
        speak()

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock()
        size = self._size()
        if size:
            self._file.measured(size, None, now)
        if now - self._at < fleet_view.LINE_EVERY:
            return
        self._at = now
        if not size:
            self._say(self._words[0])
            return
        rate = self._file.rate(now)
        self._say(
            f"{self._words[1]}: {size // 10**6} MB" + (f", {fleet_state.speed(rate)}" if rate is not None else "")
        )

    def finish(self) -> None:
        """The task is over; its result tells the rest."""

    def _size(self) -> int:
        try:
            return os.stat(self._path, follow_symlinks=False).st_size
        except OSError:
            return 0


class GrowingFile(NormalAction):
    """Runs the module of its name; a subclass says which file grows."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module, and tell how its file grows where that can be seen."""
        path = self._growing()
        silent = self._task.check_mode or self._task.async_val or self._task.args.get("progress") == fleet_view.NONE
        if not path or silent:
            return super().run(tmp, task_vars)
        host = str((task_vars or {}).get("inventory_hostname", ""))
        before, while_it_grows = self._words()
        beat = Beat(
            path,
            (f"{host}: {one_line(before, 200)}", f"{host}: {one_line(while_it_grows, 200)}"),
            display.printer(fleet_view.LINES)[0],
        )
        context = contextvars.copy_context()
        (result,) = display.each([None], lambda _one: context.run(self._as_usual, tmp, task_vars), beat)
        if isinstance(result, Exception):
            raise result
        return result

    def _as_usual(self, tmp: str | None, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        return super().run(tmp, task_vars)

    @abc.abstractmethod
    def _growing(self) -> str:
        """The file of the controller that grows; empty when it is elsewhere."""

    @abc.abstractmethod
    def _words(self) -> tuple[str, str]:
        """What happens before the file is there, and what while it grows."""
