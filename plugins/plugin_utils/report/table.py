# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as the table that a person reads at the end of a run (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, installed
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, spaced

from .results import Report, percentile, ratio, where

#: Lines of what a failed program printed last that are shown, and of how many machines.
SHOWN, TAILS = 10, 3
#: Machines that are named where more than these would bury the rest.
NAMED = 20
_HEADS = ("count", "avg", "p50", "p95", "min", "max")


def table(report: Report) -> list[str]:
    """The lines a person reads at the end of a run."""
    lines = _errors(report) + _durations(report)
    if report.machines:
        lines += _machines(report)
    return lines + _nodes(report)


def _errors(report: Report) -> list[str]:
    """Why the run as a whole failed, and which hosts it did not come to; each is said once."""
    left = report.not_attempted()
    if not (report.errors or left):
        return []
    before = "" if report.machines or report.phases() else " before any machine"
    lines = [f"Run failed{before}: {text}" for text in report.errors]
    if left:
        lines.append(f"Not attempted: {listed([spaced(name, 63) for name in left], NAMED)}")
    return [*lines, ""]


def _durations(report: Report) -> list[str]:
    """Seconds of each step over all machines, and of the whole way."""
    rows: list[tuple[str, list[float]]] = []
    for step in report.durations():
        figures = [step["count"], step["avg"], step["p50"], step["p95"], step["min"], step["max"]]
        rows.append((f"{step['from'] or '(none)'} → {step['to']}", figures))
    totals = {machine["name"]: machine["seconds"] for machine in report.machines if machine["transitions"]}
    spent: dict[str, list[float]] = {}
    for phase in report.phases():
        spent.setdefault(phase["phase"], []).append(phase["seconds"])
        totals[phase["machine"]] = totals.get(phase["machine"], 0) + phase["seconds"]
    rows += [(role, _figures(seconds)) for role, seconds in spent.items()]
    if not rows:
        return []
    rows.append(("whole machine", _figures(list(totals.values()))))
    width = max(len("seconds"), *(len(label) for label, _values in rows))
    lines = ["seconds".ljust(width) + "".join(head.rjust(9) for head in _HEADS)]
    for label, (count, *values) in rows:
        lines.append(f"{label.ljust(width)}{count:9d}" + "".join(f"{value:9.1f}" for value in values))
    return [*lines, ""]


def _figures(values: list[float]) -> list[Any]:
    average = sum(values) / len(values)
    return [len(values), average, percentile(values, 0.5), percentile(values, 0.95), min(values), max(values)]


def _machines(report: Report) -> list[str]:
    machines = report.machines
    per_machine = ratio(report.api_calls, len(machines))
    failed = [machine for machine in machines if machine["failed"]]
    running = [
        machine
        for machine in machines
        if machine["boot_state"] == boot_states.OPERATING_SYSTEM_RUNNING and not machine["failed"]
    ]
    verified = [machine for machine in running if machine["verified"]]
    unverified = [machine for machine in running if machine["verified"] is False]
    drifted = [machine for machine in machines if machine["drift"]]
    changed = sum(machine["changed"] for machine in machines)
    unfinished = len(machines) - len(running) - len(failed) if report.errors else 0
    lines = [
        f"API calls: {report.api_calls} in all, {per_machine:.1f} per machine",
        f"Machines: {len(machines)}, {len(verified)} running a verified system, {changed} changed, "
        f"{len(failed)} failed" + (f", {unfinished} not finished" if unfinished else ""),
    ]
    if len(machines) <= NAMED:
        lines += [f"  {spaced(machine['name'], 63)}: {where(machine)}" for machine in machines if where(machine)]
    if unverified:
        lines.append(f"Not verified: {listed([spaced(one['name'], 63) for one in unverified], NAMED)}")
    used = [machine for machine in machines if machine["used"] and not machine["failed"]]
    lines += _at_most(
        f"  {spaced(machine['name'], 63)} {spaced(installed.drift_in_words(machine['drift']), 1000)}"
        for machine in drifted
    )
    lines += _at_most(f"  {spaced(machine['name'], 63)}: {spaced(machine['used'])}" for machine in used)
    elsewhere = [machine for machine in machines if machine["instead"]]
    lines += _at_most(f"  {spaced(machine['name'], 63)} is {machine['instead']}" for machine in elsewhere)
    lines += _at_most(f"  warning: {text}" for machine in machines for text in machine["warned"])
    touched = (
        report.errors or changed or failed or any(phase["changed"] or phase["failed"] for phase in report.phases())
    )
    if not (touched or unverified or drifted or used):
        lines.append("Nothing changed: every machine was found in the state that was asked for.")
    for place, machine in enumerate(failed):
        lines.append(f"  {spaced(machine['name'], 63)} failed: {machine['reason']}")
        lines += [f"    {line}" for line in machine["interleaved_tail"][-SHOWN:] if place < TAILS]
    return lines


def _at_most(given: Iterable[str]) -> list[str]:
    lines = list(given)
    return lines if len(lines) <= NAMED else [*lines[:NAMED], f"  and {len(lines) - NAMED} more, see the report"]


def _nodes(report: Report) -> list[str]:
    """What became of the roles of the node phase."""
    lines = []
    phases = report.phases()
    for role in dict.fromkeys(phase["phase"] for phase in phases):
        mine = [phase for phase in phases if phase["phase"] == role]
        failed = [phase for phase in mine if phase["failed"]]
        changed = sum(phase["changed"] for phase in mine)
        lines.append(f"{role}: {len(mine)} machines, {changed} changed, {len(failed)} failed")
        lines += [f"  {spaced(phase['machine'], 63)} failed: {phase['reason']}" for phase in failed]
    return lines
