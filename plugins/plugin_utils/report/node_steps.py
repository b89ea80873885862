# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task's result as lines for a person who watches one machine become a node (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import spaced

OK, CHANGED, FAILED, IGNORED = "ok", "changed", "failed", "ignored"
_SIGNS = {OK: "✓", CHANGED: "✓", FAILED: "✗", IGNORED: "!"}
_LONGEST = 2000


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
        lines.append(spaced("code: %s" % failure["code"]))
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
            name = spaced("%s %s" % (entry.get("name", "?"), entry.get("version", "")))
            yield Step(CHANGED, "  " + name, _total([entry]), note)


def _total(members: list[Mapping[str, Any]]) -> float | None:
    known = [member["seconds"] for member in members if isinstance(member.get("seconds"), (int, float))]
    return sum(known) if known else None
