# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for all integration tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.toolchain.paths import installed_tree
from lab.cluster import programs
from lab.errors import Unavailable
from tests.integration.commands.image_site import Web

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


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user has installed the collection: built, and installed from the file."""
    built = os.environ.get("KUBENODE_BUILT")
    collections = Path(built) if built else installed_tree(tmp_path_factory.mktemp("installed"))
    assert (collections / "ansible_collections/kubenode/provision/MANIFEST.json").exists()
    return collections


@pytest.fixture(scope="session")
def real_ignition() -> Path:
    """Ignition, of its Go module; for tests with the marker ``cluster``."""
    try:
        return programs.ensure_ignition(print)
    except Unavailable as error:
        pytest.skip(str(error))
