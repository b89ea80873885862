# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for all integration tests."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.toolchain.paths import CHECKOUT, tracked_files
from lab.errors import Unavailable
from lab.images import ignition_build
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
    folder = tmp_path_factory.mktemp("installed")
    for name in tracked_files():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, folder / "source" / name, follow_symlinks=False)
    # another collections path than that of the tests: what is found there is not installed
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")}

    def galaxy(*words: str | Path) -> None:
        subprocess.run(["ansible-galaxy", "collection", *words], env=environment, check=True, timeout=300)

    galaxy("build", "--output-path", folder, folder / "source")
    (built,) = folder.glob("kubenode-provision-*.tar.gz")
    galaxy("install", built, "--no-deps", "-p", folder / "collections")
    shutil.rmtree(folder / "source")
    assert (folder / "collections/ansible_collections/kubenode/provision/MANIFEST.json").exists()
    return folder / "collections"


@pytest.fixture(scope="session")
def real_ignition() -> Path:
    """Ignition, of its Go module; for tests with the marker ``cluster``."""
    try:
        return ignition_build.ensure(print)
    except Unavailable as error:
        pytest.skip(str(error))
