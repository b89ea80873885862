# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A place for containers whose rescues have installimage."""

import asyncio

import pytest

from lab import images
from lab.machines.backend import Backend


@pytest.fixture
async def backend(nspawn_backend: Backend) -> Backend:
    """Containers with the share of the real rescue."""
    nspawn_backend.share = await asyncio.to_thread(images.share)
    return nspawn_backend
