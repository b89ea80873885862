# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios, each in a session of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).resolve().parents[2] / "extensions"
SCENARIOS = sorted(path.parent.name for path in (EXTENSIONS / "molecule").glob("*/molecule.yml"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.molecule
@pytest.mark.nspawn
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario, tmp_path):
    environment = {
        **os.environ,
        "NO_COLOR": "1",
        "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule"),
        "KUBENODE_MOLECULE_PORT": str(free_port()),
    }
    words = ["molecule", "test", "--scenario-name", scenario]
    done = subprocess.run(words, cwd=EXTENSIONS, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
