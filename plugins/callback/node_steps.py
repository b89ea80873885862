# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_steps
type: stdout
short_description: One line a step while one machine becomes a node
version_added: 1.0.0
description:
  - Shows each step of the roles P(kubenode.provision.base#role) and P(kubenode.provision.join#role) as it goes.
  - In a terminal the running step is shown as well, and every line has a sign; otherwise the lines suit a log.
  - Tasks that only compute are not shown, unless they fail; of debug tasks only the message is.
  - The program C(provision) uses it. It suits runs on a single machine, since lines do not name hosts.
requirements:
  - To be chosen as C(stdout_callback).
author:
  - kubenode.provision authors (@kubenode)
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import spaced

OK = "ok"
CHANGED = "changed"
FAILED = "failed"
IGNORED = "ignored"
_SIGNS = {OK: "✓", CHANGED: "✓", FAILED: "✗", IGNORED: "!"}
_LONGEST = 2000

#: they run on the controller and change nothing
_SILENT = {"set_fact", "include_tasks", "include_role", "include_vars", "import_tasks", "import_role", "meta", "assert"}
_SILENT |= {"fail", "validate_argument_spec", "add_host", "group_by"}
_COLORS = {OK: "COLOR_OK", CHANGED: "COLOR_CHANGED", FAILED: "COLOR_ERROR", IGNORED: "COLOR_WARN"}


class CallbackModule(CallbackBase):
    """Lines as steps begin and end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "kubenode.provision.node_steps"

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout.isatty()
        self._began = time.monotonic()
        self._running = False

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task begins; a terminal sees its name at once."""
        self._began = time.monotonic()
        self._clear()
        if self._terminal and not self._silent(task.action) and _kind(task.action) != "debug":
            self._running = True
            sys.stdout.write("… " + title(_name(task))[:70])
            sys.stdout.flush()

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._display.error("no host matched: nothing was done")

    def v2_runner_on_ok(self, result: Any) -> None:
        data, task = result._result, result._task  # the only access that every supported ansible-core has
        if self._silent(task.action):
            return
        if _kind(task.action) == "debug":
            for line in message(data):
                self._display.display("  " + line)
            return
        self._show(task, data, CHANGED if data.get("changed") else OK)
        self._handle_warnings(data)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._failed(result, ignored=ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._failed(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._clear()

    def v2_on_file_diff(self, result: Any) -> None:
        diff = result._result.get("diff")
        if diff and not result._result.get("_ansible_no_log"):
            self._clear()
            shown = self._get_diff(diff)
            if shown:
                self._display.display(shown)

    def _failed(self, result: Any, ignored: bool = False) -> None:
        data, outcome = result._result, IGNORED if ignored else FAILED
        self._show(result._task, data, outcome)
        for line in reason(data):
            self._display.display("    " + line, color=getattr(constants, _COLORS[outcome]))
        self._handle_warnings(data)

    def _show(self, task: Any, data: dict[str, Any], outcome: str) -> None:
        self._clear()
        for step in steps(_name(task), data, time.monotonic() - self._began, outcome):
            self._display.display(step.line(self._terminal), color=getattr(constants, _COLORS[step.outcome]))

    def _clear(self) -> None:
        """Take the line of the running step away."""
        if self._running:
            self._running = False
            sys.stdout.write("\r\x1b[K")
            sys.stdout.flush()

    @staticmethod
    def _silent(action: str) -> bool:
        return _kind(action) in _SILENT


def _name(task: Any) -> str:
    """The task's name without the role's in front."""
    return str(task.name or task.action)


def _kind(action: str) -> str:
    """A module's name without its collection's."""
    return action.rsplit(".", 1)[-1]


# --- a task's result as lines (pure)


@dataclass(frozen=True)
class Step:
    """The content of one line; ``seconds`` is None where the time was not measured."""

    outcome: str
    name: str
    seconds: float | None = None
    note: str = ""

    def line(self, signs: bool) -> str:
        """The line; with `signs` for a terminal, else for a log."""
        time = "" if self.seconds is None else f"{self.seconds:.1f} s"
        if signs:
            return f"{_SIGNS[self.outcome]} {self.name:<44} {time:>8}  {self.note}".rstrip()
        about = ", ".join(filter(None, (self.note, time)))
        return f"{self.outcome}: {self.name}" + (f" ({about})" if about else "")


def steps(name: str, result: Mapping[str, Any], seconds: float, outcome: str) -> Iterator[Step]:
    """The task itself, and before it what a result says of its own parts."""
    if not result.get("_ansible_no_log"):
        yield from _settings(result.get("steps"))
        yield from _artifacts(result.get("artifacts"))
    yield Step(outcome, title(name), seconds, "changed" if outcome == CHANGED else "")


def title(name: str) -> str:
    """A task's name without the file's name that the roles put in front."""
    return spaced(name.rpartition(" | ")[2])


def message(result: Mapping[str, Any]) -> list[str]:
    """What a debug task says, as lines."""
    if result.get("_ansible_no_log"):
        return []
    said = result.get("msg")
    entries = said if isinstance(said, list) else [said]
    return [spaced(entry) for entry in entries if isinstance(entry, str)]


def reason(result: Mapping[str, Any]) -> list[str]:
    """Why a task failed, as lines without control characters."""
    if result.get("_ansible_no_log"):
        return ["the reason may hold a secret, so the task hides it (no_log)"]
    text = str(result.get("msg") or result.get("censored") or result.get("module_stderr") or "no reason given")
    lines = [spaced(line) for line in text[:_LONGEST].splitlines()]
    failure = result.get("failure")
    if isinstance(failure, Mapping) and failure.get("code"):
        lines.append(spaced(f"code: {failure['code']}"))
    return [line for line in lines if line]


def _settings(entries: Any) -> Iterator[Step]:
    """`steps` of node_settings, one line for each step of the role."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("step"):
            groups.setdefault(str(entry["step"]), []).append(entry)
    for step, members in groups.items():
        changed = sum(bool(member.get("changed")) for member in members)
        note = f"{changed} of {len(members)} changed" if changed else ""
        yield Step(CHANGED if changed else OK, "  " + spaced(step), _total(members), note)


def _artifacts(entries: Any) -> Iterator[Step]:
    """`artifacts` of node_artifacts, those that were installed."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("changed"):
            size = entry.get("bytes")
            note = f"{size / 1_000_000:.1f} MB" if isinstance(size, int) and size else ""
            name = spaced(f"{entry.get('name', '?')} {entry.get('version', '')}")
            yield Step(CHANGED, "  " + name, _total([entry]), note)


def _total(members: list[Mapping[str, Any]]) -> float | None:
    known = [member["seconds"] for member in members if isinstance(member.get("seconds"), (int, float))]
    return sum(known) if known else None
