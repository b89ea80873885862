# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators for whole playbook runs; their labs end with the module."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dev.testbed import CHECKOUT, DedicatedTestbed, Testbed
from dev.toolchain.paths import tracked_files
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
