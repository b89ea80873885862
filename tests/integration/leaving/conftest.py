# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that leave, and the clusters that they leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.stage import DedicatedStage, Stage
from tests.integration.playbooks.conftest import Playground

from .api_double import ApiDouble


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiDouble]:
    """A double of the Kubernetes API, empty."""
    double = ApiDouble(tmp_path)
    yield double
    double.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground[Stage]]:
    """Cloud machines that boot."""
    folder = tmp_path_factory.mktemp("cloud") / "stage"
    with Stage(folder, f"leaving-{os.getpid()}-cloud", lab_options=["--kind", "nspawn", "--datacenters"]) as stage:
        playground = Playground(stage)
        yield playground
        playground.stop()


@pytest.fixture(scope="module")
def dedicated(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Playground[DedicatedStage]]:
    """Dedicated servers that boot; a module lists them as ``SERVERS``."""
    folder, name = tmp_path_factory.mktemp("dedicated") / "stage", f"leaving-{os.getpid()}-dedicated"
    with DedicatedStage(folder, name, request.module.SERVERS, lab_options=["--kind", "nspawn"]) as stage:
        playground = Playground(stage)
        yield playground
        playground.stop()
