# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fleets on labs of their own."""

import os
from collections.abc import Callable, Iterator

import pytest

from lab.api.cloud_project import Settings
from tests.integration.accounts import CloudAccount
from tests.integration.faults.fleet import Fleet

#: Machines of a fleet (KUBENODE_FLEET: of a smaller one, for a look by hand), and of the slice that `make test` has.
SIZE, SMALL = int(os.environ.get("KUBENODE_FLEET", "20")), 6
#: Ten requests come back each second, so that a drained bucket costs seconds.
SETTINGS = Settings(limit=36000, refill_per_second=10)


@pytest.fixture
def fleet(lab, tmp_path) -> Iterator[Callable[..., Fleet]]:
    """Make a fleet of `dry` machines; it ends with the test."""
    made: list[CloudAccount] = []

    def make(seed: str, size: int = SIZE, **options: object) -> Fleet:
        made.append(CloudAccount(lab(kind="dry", settings=SETTINGS), tmp_path, "deploy"))
        return Fleet(made[-1], size, seed, options)

    yield make
    for project in made:
        project.stop()
