# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests on whole virtual machines get a second try: without KVM, emulated kernels crash or stall now and then."""

from __future__ import annotations

import warnings

import pytest
from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test marked ``qemu`` once more when it failed, and say so; every other test is pytest's own business."""
    if item.get_closest_marker("qemu") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    # The module's fixtures stay for the second try, so nothing is torn down that it needs.
    reports = runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]
    failed = [report for report in reports if report.failed]
    if failed:
        warnings.warn(f"{item.nodeid} failed and is tried once more:\n{failed[0].longreprtext[-3000:]}", stacklevel=1)
        item._initrequest()  # type: ignore[attr-defined]
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    else:
        item.session._setupstate.teardown_exact(nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
