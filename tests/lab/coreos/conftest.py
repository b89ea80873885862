# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the live image share."""

import subprocess
from pathlib import Path

import pytest

from lab.coreos import LiveImage


@pytest.fixture(scope="session")
def content(coreos: LiveImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the ISO, as xorriso reads them."""
    folder = tmp_path_factory.mktemp("content") / "iso"
    command = ["xorriso", "-osirrox", "on", "-indev", str(coreos.iso), "-extract", "/", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def applets(coreos: LiveImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with busybox's programs, as the initramfs has them."""
    folder = tmp_path_factory.mktemp("applets")
    subprocess.run([str(coreos.busybox), "--install", "-s", str(folder)], check=True)
    return folder
