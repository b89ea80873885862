# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator of the image server has: base images, and a folder for documents."""

from pathlib import Path

import pytest

from tests.unit.liveimage.maker import LAYOUTS, Layout, make


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """live.iso and live.img, and the same of another architecture; nothing changes them."""
    place = tmp_path_factory.mktemp("bases")
    make(place / "live.iso", LAYOUTS["2023-igninfo"])
    (place / "live.img").write_bytes(b"INITRD" * 3335)
    make(place / "live_riscv64.iso", Layout(rootfs=400_000))
    (place / "live_riscv64.img").write_bytes(b"RISC-V" * 2221)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for documents of hosts, empty."""
    place = tmp_path / "hosts"
    place.mkdir()
    return place
