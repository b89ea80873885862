# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bases of images for the tests of the image server."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import bases
from tests.unit.liveimage.maker import LAYOUTS, make


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ISO and an initramfs as they are published; no test changes it."""
    found = tmp_path_factory.mktemp("bases")
    make(found / "live.iso", LAYOUTS["2023-igninfo"])
    (found / "live.img").write_bytes(b"INITRD" * 3333)
    return found


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base that comes, goes or is replaced is another one at the next look, without a wait until it is whole."""
    monkeypatch.setattr(bases, "_SETTLED", 0.0)
    monkeypatch.setattr(bases, "_CACHED", 0.0)
