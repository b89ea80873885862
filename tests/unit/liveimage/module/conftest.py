# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workshop of a test, in an environment without the peer's variables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.liveimage import maker
from tests.unit.liveimage.module.building import Workshop

PREFIXES = ("IRONIC_", "DEPLOY_", "HTTP", "NO_PROXY", "CA_BUNDLE", "REGISTRIES_", "IP_OPTIONS", "ADDITIONAL_", "IMAGE_")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No variable that an option would fall back to."""
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> Path:
    """A current ISO as it is published."""
    return maker.make(tmp_path_factory.mktemp("published") / "coreos.iso", maker.Layout())


@pytest.fixture
def workshop(tmp_path, published) -> Workshop:
    """A base ISO of its own and an empty destination."""
    return Workshop(tmp_path, published)
