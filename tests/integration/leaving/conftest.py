# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that leave, and the clusters that they leave."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.testbed import DedicatedTestbed, Testbed
from tests.integration.testbeds import Operator, cloud_testbed, dedicated_testbed

from .kubernetes_double import ApiDouble


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiDouble]:
    """A double of the Kubernetes API, empty."""
    double = ApiDouble(tmp_path)
    yield double
    double.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator[Testbed]]:
    """Cloud machines that boot."""
    with Operator.of(cloud_testbed(tmp_path_factory.mktemp("cloud"))) as operator:
        yield operator


@pytest.fixture(scope="module")
def dedicated(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Operator[DedicatedTestbed]]:
    """Dedicated servers that boot; a module lists them as ``SERVERS``."""
    with Operator.of(dedicated_testbed(tmp_path_factory.mktemp("dedicated"), request.module.SERVERS)) as operator:
        yield operator
