# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: stand-ins as processes, and one control plane for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.kubelet.process import Kubelet

if TYPE_CHECKING:
    from lab.cluster.running import RunningCluster

Factory = Callable[..., Kubelet]


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Factory]:
    """Make stand-ins: ``kubelet(version="1.36.4", name="a")``; they are ended after the test."""
    made: list[Kubelet] = []

    def make(version: str = "1.36.4", name: str = "a") -> Kubelet:
        made.append(Kubelet(tmp_path / name, version))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    """A control plane without machines; tests use node names of their own."""
    from lab.running import RunningLab

    with RunningLab(kind="dry") as running:
        yield running.cluster()
