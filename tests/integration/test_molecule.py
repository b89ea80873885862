# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios, each in a session of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import ports
from tests.integration.controller import Controller

EXTENSIONS = Path(__file__).resolve().parents[2] / "extensions"
SCENARIOS = sorted(path.parent.name for path in (EXTENSIONS / "molecule").glob("*/molecule.yml"))


@pytest.mark.molecule
@pytest.mark.nspawn
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario, tmp_path):
    controller = Controller(None, tmp_path)
    words = ["molecule", "test", "--scenario-name", scenario]
    with ports.keep() as kept:
        environment = {
            **os.environ,
            "NO_COLOR": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": controller.settings["ANSIBLE_SSH_CONTROL_PATH_DIR"],
            "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule"),
            "KUBENODE_MOLECULE_PORT": str(kept.getsockname()[1]),
        }
        done = subprocess.run(words, cwd=EXTENSIONS, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
