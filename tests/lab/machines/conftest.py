# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sites of every kind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.machines.site import Site, open_site
from tests.lab.machines.guest import Key


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """A key of our own."""
    return Key.make(tmp_path)


def _need_root(kind: str) -> None:
    if os.geteuid() != 0:
        pytest.fail(f"machines of kind {kind} need root; run as root, or leave these tests out with -m 'not {kind}'")


@pytest.fixture
async def nspawn_site(tmp_path: Path) -> AsyncIterator[Site]:
    """A place for containers."""
    _need_root("nspawn")
    site = await open_site("nspawn", "test", tmp_path / "site")
    yield site
    await site.close()


@pytest.fixture
async def qemu_site(tmp_path: Path) -> AsyncIterator[Site]:
    """A place for virtual machines."""
    _need_root("qemu")
    site = await open_site("qemu", "test", tmp_path / "site")
    yield site
    await site.close()
