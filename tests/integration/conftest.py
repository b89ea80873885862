# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for all integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands.web import Web

#: Seconds until a test counts as hanging, also on a machine that does a lot else.
HANGS = 1800


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A time limit ends a test that hangs; it says nothing about how fast anything is."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS))


@pytest.fixture
def web() -> Iterator[Web]:
    """Serve files for one test."""
    server = Web()
    yield server
    server.close()
