# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for all tests."""

import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import go_build
from lab.errors import ClusterError
from lab.testing import coreos, lab, lab_dry, lab_nspawn, lab_qemu, pytest_runtest_protocol

__all__ = ["coreos", "lab", "lab_dry", "lab_nspawn", "lab_qemu", "pytest_runtest_protocol"]


class _NoKubernetes:
    """No test without the marker ``cluster`` asks for the lab's Kubernetes, whether it is built already or not."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.get_closest_marker("cluster") is not None:
            return (yield)
        make = go_build.once

        def once(folder: Path, *arguments: Any) -> None:
            if not folder.name.startswith("kubernetes-tools-"):
                raise ClusterError(f"{item.nodeid} builds {folder.name}, which takes minutes: mark it with cluster")
            make(folder, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(go_build, "once", once)
            return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_NoKubernetes())
    # of nohup or of a shell's background, where they are ignored, and by every program that a test starts, too
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def hour_of_its_own(request: pytest.FixtureRequest) -> None:
    """A worker's tests share their labs, and Robot counts for an hour: 50 resets in all, for one."""
    for name in ("lab_nspawn", "lab_qemu"):
        if name in request.fixturenames:
            request.getfixturevalue(name).control("DELETE", "/robot/limits")
