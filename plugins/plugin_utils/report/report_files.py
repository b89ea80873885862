# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one page for a browser: no scripts, and nothing from elsewhere (pure).

What machines said is on it; the template escapes all of it.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined, Template

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, installed
from ansible_collections.kubenode.provision.plugins.module_utils._common.safe_files import replacing
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import (
    from_rfc3339,
    json_object,
    moment,
    spaced_lines,
    to_rfc3339,
    whole_number,
)

from ..progress.fleet_state import WORDS
from . import results
from .results import Machine, Phase, ReportData, where

_TEMPLATE = Path(__file__).with_name("page.html.j2")

#: A letter on a machine's bar, and words in the legend: for boot states, and for roles of the node phase.
STATES: dict[str, tuple[str, str]] = {
    **{state: (WORDS[state].letter, WORDS[state].legend) for state in boot_states.ORDER if WORDS[state].letter},
    "base": ("N", "role base"),
    "join": ("J", "role join"),
}
#: What differs in messages of one meaning: addresses, numbers, digests.
_OWN = re.compile(r"\b[0-9a-f]*[0-9][0-9a-f.:]*\b")
#: Seconds between two marks of the axis, of which the first is taken that gives at most ten marks, or six long ones.
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
#: Percent of the bar that a piece must have to carry its letter.
_ROOM = 2.5
#: Failures of one reason whose last lines are shown.
_SHOWN = 5


@dataclass
class Piece:
    """A part of a machine's bar, in percent of the whole time."""

    state: str
    left: float
    width: float
    seconds: float

    @property
    def letter(self) -> str:
        """Its letter, when there is room for one."""
        return STATES[self.state][0] if self.width >= _ROOM else ""

    @property
    def place(self) -> int:
        """The number of its colour."""
        return list(STATES).index(self.state)


@dataclass
class Row:
    name: str
    outcome: str
    seconds: float
    log: str
    #: Its address and id, as far as they are known.
    where: str = ""
    pieces: list[Piece] = field(default_factory=list)
    #: Percent at which it was done; None for one that is not.
    done_at: float | None = None

    @property
    def words(self) -> str:
        """The bar in words."""
        return ", ".join(f"{STATES[one.state][1]} {one.seconds:.1f} s" for one in self.pieces)


def page(data: ReportData, folder: str = "") -> str:
    """The page of a report (the dictionary that becomes the JSON file); ``folder`` is where it will lie."""
    began = from_rfc3339(data["started"])
    ended = from_rfc3339(data["finished"] or data["updated"])
    rows = _rows(data, began, max(ended - began, 0.001), folder)
    done = [row.done_at for row in rows if row.done_at is not None]
    return _template().render(
        data=data,
        rows=rows,
        counts={outcome: sum(row.outcome == outcome for row in rows) for outcome in OUTCOMES},
        outcomes=OUTCOMES,
        marks=_marks(ended - began),
        lines=_reached(sorted(done), len(rows)),
        states=[(place, *STATES[state]) for place, state in enumerate(STATES) if _seen(rows, state)],
        failures=_failures(data, folder),
        shares=_shares(data),
        duration=_duration(ended - began),
        at=lambda text: text[:19].replace("T", " ") + " UTC",
        drift=[(one["name"], installed.drift_in_words(one["drift"])) for one in data["machines"] if one["drift"]],
        cost=results.cost_line(cost) if (cost := data.get("cost")) else "",
        shown=_SHOWN,
    )


def _reached(done: Sequence[float], machines: int) -> list[tuple[str, float]]:
    """When half and when 95 percent of so many machines were done, as far as that came to pass; ``done``: in order."""
    ranks = [(name, math.ceil(machines * share)) for name, share in (("p50", 0.5), ("p95", 0.95))]
    return [(name, done[rank - 1]) for name, rank in ranks if machines > 1 and rank <= len(done)]


@functools.cache
def _template() -> Template:
    """Compiled once in a process: a run writes the page all the time."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))


def _printable(value: Any) -> Any:
    """What is put out, without characters that browsers obey."""
    return spaced_lines(value) if isinstance(value, str) else value


#: What became of a machine, and its sign.
OUTCOMES: dict[str, str] = {
    "failed": "✗",
    "not finished": "…",
    "under way": "…",
    "not verified": "?",
    "verified": "✓",
    "done": "✓",
    "removed": "−",
    "checked": "·",
}


def _outcome(machine: Machine, data: ReportData) -> str:
    if machine["failed"]:
        return "failed"
    if machine["removed"]:
        return "removed"
    running = machine["boot_state"] == boot_states.OPERATING_SYSTEM_RUNNING
    if running and machine["verified"] is not None:
        return "verified" if machine["verified"] else "not verified"
    if data["check"] and data["finished"]:
        return "checked"
    if running or (data["finished"] and not data["errors"]):
        return "done"
    return "not finished" if data["finished"] else "under way"


def _rows(data: ReportData, began: float, whole: float, folder: str) -> list[Row]:
    phases: dict[str, list[Phase]] = {}
    for phase in data["phases"]:
        phases.setdefault(phase["machine"], []).append(phase)
    machines = {machine["name"]: machine for machine in data["machines"]}
    rows = []
    for name in [*machines, *(one for one in phases if one not in machines)]:
        machine, mine = machines.get(name), phases.get(name, [])
        failed = any(phase["failed"] for phase in mine)
        outcome = "failed" if failed else _outcome(machine, data) if machine else "done"
        spans = _spans(machine, mine, began + whole if outcome == "under way" else None)
        row = Row(
            name=name,
            outcome=outcome,
            seconds=sum(seconds for _state, _start, seconds in spans),
            log=_link(machine["log_file"], folder) if machine else "",
            where=where(machine) if machine else "",
        )
        for state, start, seconds in spans:
            left = max(0.0, (start - began) / whole * 100)
            width = min(100.0, (start + seconds - began) / whole * 100) - left
            if state in STATES and width > 0:
                row.pieces.append(Piece(state, round(left, 2), round(width, 2), seconds))
        if row.pieces and outcome in ("verified", "not verified", "done", "removed"):
            row.done_at = round(row.pieces[-1].left + row.pieces[-1].width, 2)
        rows.append(row)
    order = list(OUTCOMES)
    return sorted(rows, key=lambda row: (order.index(row.outcome), _natural(row.name)))


def _spans(machine: Machine | None, phases: list[Phase], until: float | None) -> list[tuple[str, float, float]]:
    """(State, when it began, seconds) of a machine; ``until``: the time up to which it is in its last state."""
    spans, last = [], None
    for step in machine["transitions"] if machine else ():
        last = moment(step["at"])
        if last is not None:
            spans.append((step["from"], last - step["seconds"], float(step["seconds"])))
    if machine and until is not None and last is not None:
        spans.append((machine["boot_state"], last, max(0.0, until - last)))
    spans += [(one["phase"], moment(one["started"]) or 0.0, float(one["seconds"])) for one in phases]
    return spans


def _failures(data: ReportData, folder: str) -> list[dict[str, Any]]:
    """Machines that failed for one reason: ``{"reason", "machines": [{"name", "state", "lines", "log"}]}``."""
    found: dict[str, list[dict[str, Any]]] = {}
    reasons: dict[str, str] = {}

    def add(name: str, reason: str | None, **more: Any) -> None:
        reason = reason or "no reason given"
        # The same happened to machines whose messages differ in names, addresses and durations only.
        same = _OWN.sub("#", reason.replace(name, "#"))
        reasons.setdefault(same, reason)
        found.setdefault(same, []).append({"name": name, **more})

    for machine in data["machines"]:
        if machine["failed"]:
            lines = machine["interleaved_tail"] or machine["stderr_tail"]
            log = _link(machine["log_file"], folder)
            add(machine["name"], machine["reason"], state=_state(machine), lines=lines, log=log)
    for phase in data["phases"]:
        if phase["failed"]:
            add(phase["machine"], phase["reason"], state=f"role {phase['phase']}", lines=[], log="")
    groups: list[dict[str, Any]] = [
        {"reason": reasons[same], "machines": sorted(machines, key=lambda one: _natural(one["name"]))}
        for same, machines in found.items()
    ]
    return sorted(groups, key=lambda group: (-len(group["machines"]), _natural(group["machines"][0]["name"])))


def _state(machine: Machine) -> str:
    """Where a machine was when it failed, in words."""
    steps, state = machine["transitions"], machine["boot_state"]
    if state == boot_states.PROVISIONING_FAILED and steps:
        state = steps[-1]["from"]
    return f"{state}: {STATES[state][1]}" if state in STATES else state


def _shares(data: ReportData) -> list[dict[str, Any]]:
    """The figures of every step, with its part (percent) of the time of all machines together."""
    steps: list[dict[str, Any]] = [
        {"name": f"{one['from'] or '(none)'} → {one['to']}", "state": one["from"], **one} for one in data["durations"]
    ]
    for role in dict.fromkeys(phase["phase"] for phase in data["phases"]):
        values = [phase["seconds"] for phase in data["phases"] if phase["phase"] == role]
        steps.append({"name": f"role {role}", "state": role, **results.figures(values)})
    whole = sum(step["count"] * step["avg"] for step in steps) or 1.0
    places = list(STATES)
    return [
        {
            **step,
            "share": round(step["count"] * step["avg"] / whole * 100, 1),
            "place": places.index(step["state"]) if step["state"] in places else 0,
        }
        for step in steps
    ]


def _marks(whole: float) -> list[tuple[float, str]]:
    """(Percent, text) of the marks of the axis."""
    most = 10 if whole <= 60 else 6
    step = next((one for one in _STEPS if whole / one <= most), _STEPS[-1])
    return [(round(at / whole * 100, 2), _duration(at)) for at in range(0, int(whole) + 1, step)] if whole > 0 else []


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")


def _link(path: str, folder: str) -> str:
    """The address of a log as seen from the page."""
    return quote(os.path.relpath(path, folder or ".")) if path else ""


def _seen(rows: list[Row], state: str) -> bool:
    return any(piece.state == state for row in rows for piece in row.pieces)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """node-2 before node-10."""
    parts = [(whole_number(part), part) for part in re.split(r"([0-9]+)", name)]
    return [(0, 0, part) if number is None else (1, number, "") for number, part in parts]


#: While the run lasts, this part of its time is spent on writing the report, and it is never older than these seconds.
_SHARE, _OLDEST = 0.01, 15.0

#: The files of this run, when its callback is enabled.
_current: ReportFiles | None = None


class ReportFiles:
    """The report of one run, and where it is written."""

    def __init__(
        self, about: Callable[[results.Collected, float], dict[str, Any]], warn: Callable[[str], None], started: float
    ) -> None:
        """``about(data, now)``: what else the report says; ``warn`` shows a warning; ``started``: epoch seconds."""
        self.report = results.Report()
        #: Paths, or empty for what is not written.
        self.json_path = self.page_path = ""
        #: Where the callback's option has the report sent, which a variable may replace.
        self.notify_url = ""
        self._about, self._warn, self._started = about, warn, started
        #: A handler of a signal may write while the thread that it interrupted holds it.
        self._lock = threading.RLock()
        #: Whether a task was begun that makes or boots machines.
        self.is_begun = False
        #: Whether the run was interrupted: a result that is handed over then must not replace the last report.
        self._is_closed = False
        #: When it may be written again, and whether there is something new to write.
        self._not_before, self._is_new = 0.0, False
        #: When a result came at last.
        self._noted = 0.0
        self._broken: set[str] = set()

    def place(self, json_path: str, page_path: str | None) -> None:
        """Where the files will lie; empty for none, and None for a page beside the JSON file.

        Ansible's own type for paths makes the working directory of an empty text.
        """
        if page_path is None:
            page_path = f"{os.path.splitext(json_path)[0]}.html" if json_path else ""
        self.json_path, self.page_path = (
            os.path.abspath(os.path.expanduser(one)) if one else "" for one in (json_path, page_path)
        )
        if self.page_path and self.page_path == self.json_path:
            self._warn(
                f"report_file (KUBENODE_REPORT_FILE) is {json_path}, which is the JSON file and would be the page, "
                "too; no page is written. For a page alone, set report_file empty and report_html "
                "(KUBENODE_REPORT_HTML) to this file"
            )
            self.page_path = ""

    def begin(self) -> None:
        """Take the place of an older report before the first machine is touched; the second time, nothing."""
        with self._lock:
            if not self.is_begun:
                self.is_begun = True
                self._put(self.data(time.time(), final=False))

    def note(
        self, host: str, result: Mapping[str, Any], failed: bool = False, later: bool = False, ours: bool = False
    ) -> None:
        """Take the result of a task, and write when it changed something; ``later``: with the next `catch_up`.

        ``ours``: the task is for our machines only.
        """
        with self._lock:
            self._noted = time.time()
            self._is_new = self.report.add(host, result, failed, self._noted, ours) or self._is_new
        if not later:
            self.catch_up()

    def requests(self, task: str, made: int) -> None:
        """Take how many requests a task that is under way has made until now."""
        with self._lock:
            self.report.under_way[task] = made
            self._is_new = self._is_new or self.is_begun

    def catch_up(self) -> None:
        """Write what is new, unless that was done a moment ago."""
        with self._lock:
            began = time.time()
            if self._is_new and began >= self._not_before and not self._is_closed:
                self._put(self.data(began, final=False))
                self._is_new = False
                self._not_before = time.time() + min(_OLDEST, (time.time() - began) / _SHARE)

    def take_back(self) -> None:
        """Take what a worker of this run has written and could not return, since it was interrupted."""
        try:
            with open(self.json_path, encoding="utf-8") as file:
                kept = json_object(file.read()) or {}
        except (OSError, ValueError):
            return
        if kept.get("started") != to_rfc3339(self._started):
            return
        # What came of its task meanwhile has no transitions yet: those come with the result.
        newer = kept.get("updated", "") >= to_rfc3339(self._noted)
        with self._lock:
            ours = {machine["name"]: len(machine["transitions"]) for machine in self.report.machines}
            further = [one for one in kept["machines"] if newer or len(one["transitions"]) > ours.get(one["name"], -1)]
            machines = [{**one, "msg": one["reason"], "api_calls": 0} for one in further]
            self.report.add("localhost", {"machines": machines})

    def data(self, now: float, *, final: bool, interrupted: bool = False) -> results.ReportData:
        """The whole report as plain data; ``final``: whether the run has ended."""
        data = self.report.as_dict(interrupted)
        moments = {
            "started": to_rfc3339(self._started),
            "updated": to_rfc3339(now),
            "finished": to_rfc3339(now) if final and not interrupted else None,
        }
        return cast(results.ReportData, {**data, **self._about(data, now), **moments, "interrupted": interrupted})

    def end(self, data: results.ReportData) -> list[str]:
        """Write the report of a run that has ended; returns the paths that were written."""
        with self._lock:
            self._is_closed = data["interrupted"]
            return self._put(data)

    def _put(self, data: results.ReportData) -> list[str]:
        texts = {
            self.json_path: lambda: json.dumps(data, indent=2, ensure_ascii=False) + "\n",
            self.page_path: lambda: page(data, os.path.dirname(self.page_path)),
        }
        return [path for path, text in texts.items() if path and self._to(path, text)]

    def _to(self, path: str, text: Callable[[], str]) -> bool:
        try:
            write(path, text())
        except Exception as error:  # noqa: BLE001 - a report must never take away the result of a machine
            if path not in self._broken:
                self._broken.add(path)
                reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self._warn(f"The provisioning report could not be written to {path}: {reason}")
            return False
        return True


def begin(files: ReportFiles) -> None:
    """``files`` are those of this run."""
    global _current
    _current = files


def is_enabled() -> bool:
    """Whether the callback of this run reports it."""
    return _current is not None


def notify_url() -> str:
    """The option of the callback of this run; empty without the callback, or without the option."""
    return _current.notify_url if _current is not None else ""


def note(host: str, result: Mapping[str, Any], failed: bool = False, later: bool = False) -> None:
    """Put the result of a machine into the report of this run before its task ends; nothing without the callback."""
    if _current is not None:
        _current.note(host, result, failed, later)


def requests(task: str, made: int) -> None:
    """Put the requests of a task into the report of this run before it ends; nothing without the callback."""
    if _current is not None:
        _current.requests(task, made)


def catch_up() -> None:
    """Write what :func:`note` has left for later."""
    if _current is not None:
        _current.catch_up()


def write(path: str, text: str) -> None:
    """Write a file in one step, readable for all: who reads it sees the old one or the new one, never a part."""
    with replacing(path) as (file, _draft):
        file.write(text.encode("utf-8"))
        os.fchmod(file.fileno(), 0o644)
