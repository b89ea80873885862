# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sites of every kind."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.machines.backend import Backend, open_backend
from tests.lab.machines.guest import Key


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """A key of our own."""
    return Key.make(tmp_path)


def _need_root(kind: str) -> None:
    if os.geteuid() != 0:
        pytest.fail(f"machines of kind {kind} need root; run as root, or leave these tests out with -m 'not {kind}'")


@pytest.fixture
async def nspawn_backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """A place for containers."""
    _need_root("nspawn")
    backend = await open_backend("nspawn", "test", tmp_path / "site")
    yield backend
    await backend.close()


@pytest.fixture
async def qemu_backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """A place for virtual machines."""
    _need_root("qemu")
    backend = await open_backend("qemu", "test", tmp_path / "site")
    yield backend
    await backend.close()
