# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The longest tests begin first, so that no worker is left alone with one of them at the end.

A run that has to end in time (``KUBENODE_TESTS_UNTIL``, seconds since 1970) has whole virtual machines last instead,
and skips those whose turn comes later than that: they take up to a quarter of an hour each where there is no KVM.
"""

from __future__ import annotations

import os
import time

import pytest

LONG = ("qemu", "cluster", "molecule")  # markers, longest first
UNTIL = "KUBENODE_TESTS_UNTIL"
_BEGAN = pytest.StashKey[bool]()


def _until() -> float | None:
    text = os.environ.get(UNTIL, "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise pytest.UsageError(f"{UNTIL} is {text!r}; give seconds since 1970, as date +%s prints them") from None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with whole virtual machines, then those with a control plane, then molecule's; each file as it was."""
    limited = _until() is not None
    rank: dict[object, int] = {}
    for item in items:
        found = [place for place, name in enumerate(LONG) if item.get_closest_marker(name)]
        rank[item.path] = min([*found, rank.get(item.path, len(LONG))])
    items.sort(key=lambda item: len(LONG) + 1 if limited and rank[item.path] == 0 else rank[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a whole machine that would begin too late; one that began may be tried once more."""
    until = _until()
    if until is None or item.get_closest_marker("qemu") is None:
        return
    if not item.stash.get(_BEGAN, False) and time.time() > until:
        pytest.skip("the time for this run is over; make test without a limit runs it")
    item.stash[_BEGAN] = True
