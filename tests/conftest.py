# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for all tests."""

from __future__ import annotations

import pytest

from lab.testing import coreos, lab, lab_dry, lab_nspawn, lab_qemu, pytest_runtest_protocol

__all__ = ["coreos", "lab", "lab_dry", "lab_nspawn", "lab_qemu", "pytest_runtest_protocol"]


@pytest.fixture(autouse=True)
def hour_of_its_own(request: pytest.FixtureRequest) -> None:
    """A worker's tests share their labs, and Robot counts for an hour: 50 resets in all, for one."""
    for name in ("lab_nspawn", "lab_qemu"):
        if name in request.fixturenames:
            request.getfixturevalue(name).control("DELETE", "/robot/limits")
