# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a run in the text format of Prometheus, for the textfile collector of node_exporter (pure).

Every value is of the last run: a run replaces the file. No label holds the name of a machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import boot_states, times
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import metric_labels

PREFIX = "kubenode_provision_"
#: Upper bounds of the histograms, in seconds: from one request to the longest command.
BUCKETS = (1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 420, 600, 900, 1200, 1800, 3600)
OUTCOMES = ("verified", "unverified", "unchanged", "failed")
#: Labels of ours, which a user's label must not hide.
_OURS = ("api", "from_state", "le", "outcome", "phase", "to_state")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")

Labels = Mapping[str, str]


class BadLabel(ValueError):
    """A label of the user's that Prometheus, or we, cannot take."""


def parse_labels(given: Iterable[str]) -> dict[str, str]:
    """Labels from ``name=value``; raises :class:`BadLabel`."""
    labels = {}
    for text in given:
        name, equals, value = str(text).partition("=")
        if not equals or not _LABEL.match(name):
            raise BadLabel(f"{text!r} is no label; write it as name=value, the name of ASCII letters, digits and _")
        if name in _OURS:
            raise BadLabel(f"the label {name} has a meaning here already; choose another name")
        labels[name] = value
    return labels


def render(data: Mapping[str, Any], labels: Labels | None = None) -> str:
    """The text of the file. ``data``: the report (`Report.as_dict`, with ``started`` and ``finished``)."""
    page = _Page(labels or {})
    page.gauge("run_start_timestamp_seconds", "When the last run began.", [({}, times.moment(data.get("started")))])
    ended = times.moment(data.get("finished") or data.get("updated"))
    page.gauge("run_finish_timestamp_seconds", "When the last run ended.", [({}, ended)])
    interrupted = float(bool(data.get("interrupted")))
    page.gauge("run_interrupted", "Whether the last run was interrupted (1) or not (0).", [({}, interrupted)])
    machines = data.get("machines") or []
    found = [outcome(machine) for machine in machines]
    page.gauge(
        "machines", "Machines of the last run, each with one outcome.",
        [({"outcome": one}, float(found.count(one))) for one in OUTCOMES],
    )  # fmt: skip
    drifted = sum(bool(machine.get("drift")) for machine in machines)
    page.gauge("drifted_machines", "Machines that run something else than what is asked for.", [({}, float(drifted))])
    calls = (data.get("api_calls") or {}).get("total") or 0
    page.gauge("api_requests", "Requests to the APIs of the provider in the last run.", [({}, float(calls))])
    budgets = sorted((data.get("api_budget") or {}).items())
    for key, text in (("limit", "may be made in an hour"), ("remaining", "could still be made at the last answer")):
        page.gauge(
            f"api_requests_{key}", f"Requests that {text}, where the API tells it.",
            [({"api": api}, float(budget[key])) for api, budget in budgets],
        )  # fmt: skip
    page.histogram(
        "boot_state_duration_seconds", "Seconds that machines spent from one boot state to the next.", _pairs(machines)
    )
    page.histogram(
        "phase_duration_seconds", "Seconds that machines spent in a role of the node phase.", _phases(data)
    )  # fmt: skip
    return page.text()


def outcome(machine: Mapping[str, Any]) -> str:
    """Which one of :data:`OUTCOMES` a machine of the report has."""
    if machine.get("failed"):
        return "failed"
    if not machine.get("changed"):
        return "unchanged"
    return "verified" if machine.get("verified") else "unverified"


def _pairs(machines: Sequence[Mapping[str, Any]]) -> list[tuple[Labels, list[float]]]:
    found: dict[tuple[str, str], list[float]] = {}
    for machine in machines:
        for step in machine.get("transitions") or []:
            found.setdefault((step["from"], step["to"]), []).append(float(step["seconds"]))
    # What is no boot state would be a label for each text that a result ever had.
    known = {one: place for place, one in enumerate(boot_states.ORDER)}
    pairs = sorted((pair for pair in found if set(pair) <= set(known)), key=lambda pair: [known[one] for one in pair])
    return [({"from_state": pair[0] or "none", "to_state": pair[1]}, found[pair]) for pair in pairs]


def _phases(data: Mapping[str, Any]) -> list[tuple[Labels, list[float]]]:
    found: dict[str, list[float]] = {}
    for phase in data.get("phases") or []:
        found.setdefault(phase["phase"], []).append(float(phase["seconds"]))
    return [({"phase": name}, values) for name, values in sorted(found.items())]


class _Page:
    """The lines of a file, family by family."""

    def __init__(self, labels: Labels) -> None:
        self._labels, self._lines = labels, list[str]()

    def gauge(self, name: str, text: str, samples: Sequence[tuple[Labels, float | None]]) -> None:
        """A family of values; without a known value it is left out."""
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            self._head(name, text, "gauge")
            self._lines += [self._sample(name, labels, value) for labels, value in known]

    def histogram(self, name: str, text: str, series: Sequence[tuple[Labels, list[float]]]) -> None:
        """A family of histograms; without a series it is left out."""
        if series:
            self._head(name, text, "histogram")
        for labels, values in series:
            for bound in (*BUCKETS, float("inf")):
                within = sum(value <= bound for value in values)
                self._lines.append(self._sample(f"{name}_bucket", {**labels, "le": _number(bound)}, within))
            self._lines.append(self._sample(f"{name}_sum", labels, round(sum(values), 3)))
            self._lines.append(self._sample(f"{name}_count", labels, len(values)))

    def text(self) -> str:
        """The whole file."""
        return "".join(f"{line}\n" for line in self._lines)

    def _head(self, name: str, text: str, kind: str) -> None:
        self._lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]

    def _sample(self, name: str, labels: Labels, value: float) -> str:
        return f"{PREFIX}{name}{metric_labels({**self._labels, **labels})} {_number(value)}"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
