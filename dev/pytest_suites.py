# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pytest plugin: the order of the tests, Hypothesis' data, and a table of the suites at the end.

Files that take minutes come first, so that no worker is left alone with one of them at the end.
Property tests use the same data in every run; ``KUBENODE_HYPOTHESIS=random`` draws new data, ``fuzz`` more of it.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

PROFILE = "KUBENODE_HYPOTHESIS"
COUNTS = "KUBENODE_TEST_COUNTS"
#: data sets that fail on a slow machine only are no failures: time limits of tests are for hangs
_COMMON = hypothesis.settings(deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# derandomize is always said: Hypothesis has another default where the variable CI is set
hypothesis.settings.register_profile("same", _COMMON, derandomize=True)
hypothesis.settings.register_profile("random", _COMMON, derandomize=False, print_blob=True)
hypothesis.settings.register_profile("fuzz", hypothesis.settings.get_profile("random"), max_examples=1000)
hypothesis.settings.load_profile(os.environ.get(PROFILE) or "same")


#: Where the files that take minutes are, the longest first; after them, those with the longest time limits.
LONGEST = (
    "integration/playbooks",
    "integration/consent",
    "integration/node",
    "integration/test_molecule",
    "lab/machines/test_nspawn",
    "integration",
)


def _rank(path: Path) -> int:
    for number, where in enumerate(LONGEST):
        if f"/tests/{where}" in path.as_posix():
            return number
    return len(LONGEST)


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; the order within a file and between equals stays."""
    if os.environ.get(PROFILE) == "fuzz":
        random.shuffle(items)  # a round that is ended early has looked at other tests than the one before
        return
    limits: dict[Path, float] = {}
    for item in items:
        limits[item.path] = max(_limit(item), limits.get(item.path, 0.0))
    items.sort(key=lambda item: (_rank(item.path), -limits[item.path]))


class Failures:
    """Prints a failure when it happens: a run may take a while to its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name what failed, with the last line of the reason."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reason = [line for line in report.longreprtext.splitlines() if line.startswith("E ")] or [""]
            reporter.ensure_newline()
            reporter.write_line(f"{report.when} failed: {report.nodeid}: {reason[0][1:].strip()}")


def pytest_configure(config: pytest.Config) -> None:
    """Failures are printed where the results of all workers come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config), "kubenode-failures")


def suite_of(report: pytest.TestReport) -> str:
    """The suite of a test: molecule, or the second folder of its path."""
    if "molecule" in report.keywords:
        return "molecule"
    return "/".join(Path(report.nodeid.partition("::")[0]).parts[:2])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row a suite: how many tests passed, failed and were skipped, and their seconds on all workers."""
    rows: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter(passed=0, failed=0, skipped=0)
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            if not isinstance(report, pytest.TestReport):
                total["failed"] += outcome == "error"  # a file that could not be collected
                continue
            row = rows.setdefault(suite_of(report), Counter())
            row["seconds"] += round(report.duration * 1000)
            counted = "failed" if report.failed else report.outcome
            if report.when == "call" or counted != "passed":
                row[counted] += 1
                total[counted] += 1
    _write_counts(total, rows)
    if not rows:
        return
    terminalreporter.section("suites")
    terminalreporter.write_line(f"{'':22} {'passed':>7} {'failed':>7} {'skipped':>7} {'seconds':>8}")
    for name, row in sorted(rows.items()):
        counts = f"{row['passed']:7} {row['failed']:7} {row['skipped']:7}"
        terminalreporter.write_line(f"{name:22} {counts} {row['seconds'] / 1000:8.1f}")


def _write_counts(total: Counter[str], rows: dict[str, Counter[str]]) -> None:
    """The counts as JSON, for the summary of several runs."""
    target = os.environ.get(COUNTS)
    if target:
        names = ("passed", "failed", "skipped")
        suites = {suite: [*(row[name] for name in names), row["seconds"] / 1000] for suite, row in rows.items()}
        counts = {**{name: total[name] for name in names}, "suites": suites}
        Path(target).write_text(json.dumps(counts), encoding="ascii")
