# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller for nodes of one lab."""

from collections.abc import Iterator

import pytest

from tests.integration.controller import Controller


@pytest.fixture(scope="module")
def controller(lab_nspawn, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """A controller for machines of the run's nspawn lab."""
    controller = Controller(lab_nspawn, tmp_path_factory.mktemp("controller"))
    yield controller
    controller.stop()
