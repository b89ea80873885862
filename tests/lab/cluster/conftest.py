# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One control plane for the tests of a module."""

from collections.abc import Iterator

import pytest

from lab.cluster.running_cluster import RunningCluster
from lab.running import RunningLab


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    """A control plane beside a lab without machines."""
    with RunningLab(kind="dry") as running:
        yield running.cluster()
