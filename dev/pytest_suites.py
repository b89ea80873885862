# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pytest plugin: the order of the tests, Hypothesis' data, what runs now, and a table of the suites at the end.

Tests that need the lab's images have the marker ``images`` and wait for these, which take minutes to build. So tests
of the product and the lab that need none come first, then the others; in both groups files that take minutes come
first. Unit tests are spread among all of them: while some workers wait for machines, others use the processor.
Property tests use the same fifty data sets in every run; ``KUBENODE_HYPOTHESIS=random`` draws a hundred new ones,
``fuzz`` a thousand.
"""

import fcntl
import gc
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import hypothesis
import pytest

PROFILE = "KUBENODE_HYPOTHESIS"
COUNTS = "KUBENODE_TEST_COUNTS"
BUILDING = "KUBENODE_TEST_BUILDING"
#: data sets that fail on a slow machine only are no failures: time limits of tests are for hangs
_COMMON = hypothesis.settings(deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# derandomize is always said: Hypothesis has another default where the variable CI is set
hypothesis.settings.register_profile("same", _COMMON, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("random", _COMMON, derandomize=False, print_blob=True)
hypothesis.settings.register_profile("fuzz", hypothesis.settings.get_profile("random"), max_examples=1000)
hypothesis.settings.load_profile(os.environ.get(PROFILE) or "same")


#: Where the files that take minutes are, the longest first; after them, those with the longest time limits.
LONGEST = (
    "integration/test_demos",
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


#: markers and fixtures of tests that open the lab's images
_IMAGE_MARKERS = {"nspawn", "qemu", "cluster", "mirror", "molecule"}
_IMAGE_FIXTURES = {"lab_nspawn", "lab_qemu", "coreos"}


class Images:
    """Marks the tests that need the lab's images, and lets them wait until these are built."""

    def __init__(self, verdict: str | None) -> None:
        #: a file that is locked while images are built, and holds the exit code then
        self._verdict = Path(verdict) if verdict else None
        self._code = "0"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before pytest chooses by markers."""
        for item in items:
            marked = any(marker.name in _IMAGE_MARKERS for marker in item.iter_markers())
            if marked or _IMAGE_FIXTURES.intersection(getattr(item, "fixturenames", ())):
                item.add_marker("images")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around the time limit of the test."""
        if self._verdict is not None and item.get_closest_marker("images"):
            with self._verdict.open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                self._code = file.read()
            self._verdict = None
        return (yield)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """One clear line for each test that cannot run."""
        if self._code != "0" and item.get_closest_marker("images"):
            pytest.fail(f"the lab's images were not built (exit code {self._code or 'unknown'})", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests that stay are made here: looking for garbage among them takes half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, images last, unit tests among all; the order within a file stays."""
    if os.environ.get(PROFILE) == "fuzz":
        random.shuffle(items)  # a round that is ended early has looked at other tests than the one before
        return
    limits: dict[Path, float] = {}
    for item in items:
        limits[item.path] = max(_limit(item), limits.get(item.path, 0.0))
    images = {item.path for item in items if item.get_closest_marker("images")}
    order = sorted(limits, key=lambda path: (path in images, _rank(path), -limits[path]))
    pure = {path for path in order if "/tests/unit/" in path.as_posix()} - images
    slow, unit = [path for path in order if path not in pure], [path for path in order if path in pure]
    places = {path: (number + 1) / len(group) for group in (slow, unit) for number, path in enumerate(group)}
    items.sort(key=lambda item: places[item.path])


class Progress:
    """Prints a failure when it happens, and once a minute what runs: a run may take a while to its end."""

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._said = clock()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun[nodeid] = self._clock()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._begun.pop(nodeid, None)
        if self._clock() - self._said < 60:
            return
        self._said = self._clock()
        long = [f"{name} ({self._said - begun:.0f} s)" for name, begun in self._begun.items()]
        self._say(f"running: {', '.join(long)}" if long else "running: nothing else")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name what failed, with the last line of the reason."""
        if report.failed:
            reason = [line for line in report.longreprtext.splitlines() if line.startswith("E ")] or [""]
            self._say(f"{report.when} failed: {report.nodeid}: {reason[0][1:].strip()}")

    def _say(self, line: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    """Failures are printed where the results of all workers come together."""
    config.pluginmanager.register(Images(os.environ.get(BUILDING)), "kubenode-images")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "kubenode-progress")


def suite_of(report: pytest.TestReport) -> str:
    """The suite of a test: molecule, or the second folder of its path."""
    if "molecule" in report.keywords:
        return "molecule"
    return "/".join(Path(report.nodeid.partition("::")[0]).parts[:2])


#: Lines that say why a playbook failed.
_TELLING = re.compile("fatal:|ERROR|FAILED|Error:")


def why(report: pytest.TestReport, most: int = 14) -> list[str]:
    """The lines that say most of a failure: what failed, what a playbook in it said, and the end."""
    lines = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
    saying = [number for number, line in enumerate(lines) if _TELLING.search(line)]
    kept = {0, 1, *saying[: most // 2]}
    kept.update(range(max(len(lines) - most + len(kept), 0), len(lines)))
    return [f"{report.when} failed: {report.nodeid}", *(f"  {line[:300]}" for n, line in enumerate(lines) if n in kept)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row a suite: how many tests passed, failed and were skipped, and their seconds on all workers."""
    rows: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter(passed=0, failed=0, skipped=0)
    reasons: list[str] = []
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
            if report.failed:
                reasons += why(report)
    _write_counts(total, rows, reasons)
    if not rows:
        return
    terminalreporter.section("suites")
    terminalreporter.write_line(f"{'':22} {'passed':>7} {'failed':>7} {'skipped':>7} {'seconds':>8}")
    for name, row in sorted(rows.items()):
        counts = f"{row['passed']:7} {row['failed']:7} {row['skipped']:7}"
        terminalreporter.write_line(f"{name:22} {counts} {row['seconds'] / 1000:8.1f}")


def _write_counts(total: Counter[str], rows: dict[str, Counter[str]], reasons: list[str]) -> None:
    """The counts and what failed as JSON, for the summary of several runs."""
    target = os.environ.get(COUNTS)
    if target:
        names = ("passed", "failed", "skipped")
        suites = {suite: [*(row[name] for name in names), row["seconds"] / 1000] for suite, row in rows.items()}
        counts = {**{name: total[name] for name in names}, "suites": suites, "reasons": reasons}
        Path(target).write_text(json.dumps(counts), encoding="ascii")
