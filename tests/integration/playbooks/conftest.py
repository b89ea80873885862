# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators for whole playbook runs; their labs end with the module."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dev.testbed import DedicatedTestbed, Testbed
from tests.integration.testbeds import Operator, cloud_testbed, dedicated_testbed


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Operator[Testbed]]]:
    """Make labs for cloud machines of a kind."""
    with ExitStack() as stack:

        def make(kind: str, *options: str) -> Operator[Testbed]:
            testbed = cloud_testbed(tmp_path_factory.mktemp("stage"), *options, kind=kind)
            return stack.enter_context(Operator.of(testbed))

        yield make


@pytest.fixture(scope="module")
def dedicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Operator[DedicatedTestbed]]]:
    """Make labs of a kind with dedicated servers."""
    with ExitStack() as stack:

        def make(kind: str, servers: list[dict[str, Any]]) -> Operator[DedicatedTestbed]:
            return stack.enter_context(Operator.of(dedicated_testbed(tmp_path_factory.mktemp("stage"), servers, kind)))

        yield make


@pytest.fixture(scope="module")
def nspawn(operator: Callable[..., Any]) -> Operator[Testbed]:
    """One lab whose machines really boot, for the tests of a module."""
    return operator("nspawn")
