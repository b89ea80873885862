# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Some tests get a second try, and the failure of the first is shown as a warning at the end of the run.

Tests on whole virtual machines get it always: without KVM, emulated kernels crash or stall now and then. With
``KUBENODE_SECOND_TRY`` set, as CI does on a machine shared with strangers, so does every test but unit tests: one stall
of the machine in an hour of tests is no verdict on the change. Everywhere else the first failure is the verdict.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

SWITCH = "KUBENODE_SECOND_TRY"
_LIMIT = pytest.StashKey[Any]()


def _has_a_second_try(item: pytest.Item) -> bool:
    if item.get_closest_marker("qemu"):
        return True
    return bool(os.environ.get(SWITCH)) and "/unit/" not in f"/{item.nodeid}"


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember the limit of a test: the second try has as much time as the first."""
    item.stash[_LIMIT] = settings


def _limit_anew(item: pytest.Item) -> None:
    settings = item.stash.get(_LIMIT, None)
    if settings is not None and not settings.func_only:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run such a test once more when it failed, and say so; every other test is pytest's own business."""
    if not _has_a_second_try(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    # The module's fixtures stay for the second try, so nothing is torn down that it needs.
    reports = runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]
    failed = [report for report in reports if report.failed]
    if failed:
        warnings.warn(f"{item.nodeid} failed and is tried once more:\n{failed[0].longreprtext[-3000:]}", stacklevel=1)
        _limit_anew(item)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    else:
        item.session._setupstate.teardown_exact(nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
