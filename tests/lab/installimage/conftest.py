# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A place for containers whose rescues have installimage."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend, open_backend
from tests.lab.machines.guest import Key


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """A key of our own."""
    return Key.make(tmp_path)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Backend]:
    """Containers with the share of the real rescue."""
    if os.geteuid() != 0:
        pytest.fail("machines of kind nspawn need root; run as root, or leave these tests out with -m 'not nspawn'")
    opened = await open_backend("nspawn", "test", tmp_path / "site")
    opened.share = await asyncio.to_thread(images.share)
    yield opened
    await opened.close()
