# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests begin first, and what a run with a limit leaves out."""

from __future__ import annotations

import time

import pytest

pytest_plugins = ["pytester"]

FILES = {
    "test_a": "def test_quick(): pass",
    "test_b": "import pytest\n@pytest.mark.cluster\ndef test_cluster(): pass",
    "test_c": "import pytest\n@pytest.mark.qemu\ndef test_machine(): pass",
}
SETTINGS = (
    "[pytest]\nmarkers =\n  qemu: x\n  cluster: x\n  molecule: x\nasyncio_default_fixture_loop_scope = function\n"
)


def ran(pytester) -> tuple[list[str], dict[str, int]]:
    pytester.makeini(SETTINGS)
    pytester.makepyfile(**FILES)
    result = pytester.runpytest("-p", "dev.pytest_order", "-v", "-p", "no:cacheprovider")
    names = [line.partition("::")[2].partition(" ")[0] for line in result.outlines if "::" in line and "%]" in line]
    return names, result.parseoutcomes()


def test_whole_machines_begin_first(pytester, monkeypatch):
    monkeypatch.delenv("KUBENODE_TESTS_UNTIL", raising=False)
    assert ran(pytester) == (["test_machine", "test_cluster", "test_quick"], {"passed": 3})


@pytest.mark.parametrize(("left", "outcome"), [(3600, {"passed": 3}), (-1, {"passed": 2, "skipped": 1})])
def test_with_a_limit_they_come_last_and_only_in_time(pytester, monkeypatch, left, outcome):
    monkeypatch.setenv("KUBENODE_TESTS_UNTIL", str(int(time.time()) + left))
    assert ran(pytester) == (["test_cluster", "test_quick", "test_machine"], outcome)


def test_a_limit_that_is_none_is_refused(pytester, monkeypatch):
    monkeypatch.setenv("KUBENODE_TESTS_UNTIL", "soon")
    pytester.makepyfile(**FILES)
    result = pytester.runpytest("-p", "dev.pytest_order")
    result.stderr.fnmatch_lines(["*KUBENODE_TESTS_UNTIL is 'soon'; give seconds since 1970*"])
