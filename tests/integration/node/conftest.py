# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of one lab, and a controller that knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.node.controller import Controller


@pytest.fixture(scope="module")
def controller(lab_nspawn, tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """A controller for machines of the run's nspawn lab."""
    folder: Path = tmp_path_factory.mktemp("controller")
    return Controller(lab_nspawn, folder)
