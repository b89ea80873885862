# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugins in front of modules: what the user sees while the module runs.

The module itself runs as any other one does, in a thread beside the one that shows its progress. A module of a cloud
API writes a line into a file (its option ``progress_file``) for each change of a machine. A module that makes
one large file writes nothing; the size of that file is looked at.
"""

from __future__ import annotations

import abc
import contextlib
import contextvars
import json
import math
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants as C  # noqa: N812
from ansible import context
from ansible.plugins.action.normal import ActionModule as NormalAction

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    LARGEST_NUMBER,
    json_object,
    moment,
    one_line,
)

from ..report import report_files
from . import display, fleet_state
from .display import CHOICES, FleetView
from .fleet_state import DONE, FAILED

#: Bytes that are read at once, and the longest line that is taken.
_PIECE, _LONGEST = 1 << 20, 1 << 14
#: How the names of those files begin.
_PREFIX = "kubenode-progress-"
#: More than any price.
_MOST = 10**6


class ModuleAction(NormalAction):
    """Runs the module of its name."""

    def run_with(self, view: display.View | None, tmp: str | None, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """The result of the module, which runs in a thread while ``view`` shows its progress."""
        here = contextvars.copy_context()
        (result,) = display.each([None], lambda _one: here.run(self._as_usual, tmp, task_vars), view)
        if isinstance(result, Exception):
            raise result
        return result

    def _as_usual(self, tmp: str | None, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        result: dict[str, Any] = NormalAction.run(self, tmp, task_vars)
        return result


class OwnedAction(ModuleAction):
    """Runs a module that ends with its run; see ``OwnRun`` in ``_common/own_run``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module; where it is seen when this process ends, it ends, too."""
        given = self._task.args
        if not self._is_here() or given.get("run_socket") is not None:
            return self._within(tmp, task_vars)
        name = f"kubenode-run-{secrets.token_hex(16)}"
        with socket.socket(socket.AF_UNIX) as kept:
            kept.bind(f"\0{name}")
            kept.listen()
            self._task.args = {**given, "run_socket": name}
            try:
                return self._within(tmp, task_vars)
            finally:
                self._task.args = given

    def _within(self, tmp: str | None, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """What is done while the module can see its run."""
        return self.run_with(None, tmp, task_vars) if self._is_here() else self._as_usual(tmp, task_vars)

    def _is_here(self) -> bool:
        """Whether the module will run on this host while we wait for it."""
        connection = str(getattr(self._connection, "_load_name", "")).rpartition(".")[2]
        return connection == "local" and not self._task.async_val


class ApiAction(OwnedAction):
    """Shows the machines of a module of a provider's API."""

    def _within(self, tmp: str | None, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """Run the module; show its progress where its file can be read."""
        names, mode = _names(self._task.args), self._task.args.get("progress")
        if not names or mode not in (None, *CHOICES) or not self._is_shown():
            return super()._within(tmp, task_vars)
        given, variables = self._task.args, self._task.args.get("variables")
        variables = variables if isinstance(variables, Mapping) else {}
        # A look ahead in a run that changes things: what its result says is not reported either.
        looks_ahead = bool(self._task.check_mode) and not context.CLIARGS.get("check", False)
        handle, path = tempfile.mkstemp(prefix=_PREFIX, dir=C.DEFAULT_LOCAL_TMP)
        with contextlib.suppress(OSError), open(handle, "wb") as file:
            file.write(b"" if looks_ahead else _head(names, variables))
        try:
            self._task.args = {**given, "progress_file": path}
            show = display.view_of(names, mode, states=True)
            for one in given["machines"]:  # as the task before this one left it
                show.fleet.state(str(one["name"]), str(one.get("boot_state") or ""))
            show.feed = Reader(path, show, variables, looks_ahead=looks_ahead).read
            result = self.run_with(show, tmp, task_vars)
        except KeyboardInterrupt:
            raise  # take_rest() reads the file; it goes with the folder
        except BaseException:
            _remove(path)
            raise
        finally:
            self._task.args = given
        _remove(path)
        return result

    def _is_shown(self) -> bool:
        """Whether the module will also run as this user, with no file of its own."""
        become = bool(self._play_context.become or getattr(self._connection, "become", None))
        quiet = self._task.no_log or self._task.args.get("progress_file") is not None
        return self._is_here() and not become and not quiet


class Reader:
    """Reads the file of a module while it grows; it never fails, with any content."""

    def __init__(self, path: str, show: FleetView, variables: Mapping[str, str], *, looks_ahead: bool = False) -> None:
        """``variables``: names of options, and of the variables that messages name in their place.

        ``looks_ahead``: nothing that the module says of a change or of its requests is reported.
        """
        self._path, self._show, self._variables = path, show, dict(variables)
        self._looks_ahead, self._made = looks_ahead, 0
        self._place, self._rest = 0, b""

    def read(self) -> bool:
        """Take the lines that have come since the last time; whether there was anything."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._place)
                data = file.read(_PIECE)
        except OSError:
            return False
        self._place += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            self._rest = b""
        for line in lines:
            if len(line) <= _LONGEST:
                self._take(line)
        return bool(data)

    def _take(self, line: bytes) -> None:
        try:
            news = json_object(line.decode("utf-8")) or {}
            if isinstance(news.get("plan"), str):
                self._show.plan(one_line(in_variables(news["plan"], self._variables)))
                return
            if "made" in news:
                self._count(news["made"])
                return
            name, state, requests = str(news["machine"]), str(news["state"]), news["requests"]
            made, limit, remaining = (requests[key] for key in ("made", "limit", "remaining"))
        except (ValueError, KeyError, TypeError):
            return
        if isinstance(made, int) and all(one is None or isinstance(one, int) for one in (limit, remaining)):
            self._show.fleet.requests(made, limit, remaining)
        self._show.state(name, state)
        ended, failed = news.get("ended") is True, news.get("failed") is True
        text = one_line(in_variables(str(news.get("text", "")), self._variables), 2000)
        if ended:
            self._show.end(name, FAILED if failed else DONE, text)
        elif text:
            self._show.message(name, text)
        if name in self._show.fleet.machines:  # so that a run that is killed leaves it
            known = {"boot_state": state, "machine_name": name, "msg": text}
            if not self._looks_ahead:
                known.update(_known(news))
                self._count(made)
            report_files.note(name, known, failed=ended and failed, later=True)

    def _count(self, made: object) -> None:
        """The module has made so many requests; two threads of it may write their lines in another order."""
        if isinstance(made, int) and _is_number(made, LARGEST_NUMBER) and not self._looks_ahead:
            self._made = max(self._made, made)
            report_files.requests(self._path, self._made)


def _known(news: Mapping[str, Any]) -> dict[str, Any]:
    """What a line says of a machine that exists, with the types of a result; the rest of it is dropped."""
    said = news.get("known")
    given = said if isinstance(said, Mapping) else {}
    known = {key: given[key] for key, fits in _FACTS.items() if key in given and fits(given[key])}
    return {"changed": news.get("changed") is True, **known}


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_price(value: object) -> bool:
    return _is_number(value, _MOST) or (isinstance(value, float) and math.isfinite(value) and 0 <= value <= _MOST)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


#: What a line may say of a machine, and whether it is of its type.
_FACTS: dict[str, Callable[[object], bool]] = {
    "id": lambda value: _is_number(value, LARGEST_NUMBER),
    "address": _is_text,
    "status": _is_text,
    "server_type": _is_text,
    "location": _is_text,
    "instead": _is_text,
    "price_hourly": _is_price,
    "price_monthly": _is_price,
    "server_created": lambda value: moment(value) is not None,
}


def _head(names: Sequence[str], variables: Mapping[str, Any]) -> bytes:
    """The first line of a file, for `take_rest`."""
    known = {str(option): str(variable) for option, variable in variables.items()}
    return json.dumps({"names": list(names), "variables": known}).encode("ascii") + b"\n"


def take_rest(folder: str) -> None:
    """Report what modules have written into this folder of a run that was interrupted: no task returns it."""
    for path in sorted(Path(folder).glob(f"{_PREFIX}*")):
        try:
            with path.open("rb") as file:
                head = json_object(file.readline(_PIECE).decode("utf-8")) or {}
        except (OSError, ValueError):
            continue
        names, variables = head.get("names"), head.get("variables")
        if not isinstance(names, list) or not isinstance(variables, Mapping):
            continue
        silent = FleetView([str(name) for name in names], display.NONE, lambda _text, **_how: None)
        reader = Reader(str(path), silent, {option: str(variable) for option, variable in variables.items()})
        while reader.read():
            pass


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _names(given: Mapping[str, Any]) -> list[str]:
    """The machines of the task; none when the module will refuse the list."""
    machines = given.get("machines")
    if not isinstance(machines, list) or not all(isinstance(one, Mapping) and one.get("name") for one in machines):
        return []
    return [str(one["name"]) for one in machines]


# --- one large file


class Beat:
    """Prints a line about one file every 15 seconds; several tasks may do so at once, so there is never a table."""

    def __init__(
        self, path: str, words: tuple[str, str], say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``words``: what the module does before the file is there, and while it grows."""
        self._path, self._words, self._say, self._clock = path, words, say, clock
        self._at = clock()
        self._file = fleet_state.Machine(path, self._at)

    def aside(self, speak: Callable[[], None]) -> None:
        speak()

    def tick(self) -> None:
        now = self._clock()
        size = self._size()
        if size:
            self._file.measured(size, None, now)
        if now - self._at < display.LINE_EVERY:
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
        """The task is over; its result says the rest."""

    def _size(self) -> int:
        try:
            return os.stat(self._path, follow_symlinks=False).st_size
        except OSError:
            return 0


class GrowingFile(ModuleAction):
    """Shows how large the file of a module is; a subclass says which file."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module; show the size of its file where it can be seen."""
        path = self._growing()
        silent = self._task.check_mode or self._task.async_val or self._task.args.get("progress") == display.NONE
        if not path or silent:
            return self._as_usual(tmp, task_vars)
        host = str((task_vars or {}).get("inventory_hostname", ""))
        before, while_it_grows = self._words()
        beat = Beat(
            path,
            (f"{host}: {one_line(before, 200)}", f"{host}: {one_line(while_it_grows, 200)}"),
            display.printer(display.LINES)[0],
        )
        return self.run_with(beat, tmp, task_vars)

    @abc.abstractmethod
    def _growing(self) -> str:
        """The file of the controller that grows; empty when it is elsewhere."""

    @abc.abstractmethod
    def _words(self) -> tuple[str, str]:
        """What the module does before the file is there, and while it grows."""
