# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The molecule scenarios, each in a session of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.cluster.control_plane import keep_port
from tests.integration.controller import Controller

SOURCES = Path(__file__).resolve().parents[2] / "extensions/molecule"
#: scenario → what its machines need beside containers
SCENARIOS = {"cloud": [], "dedicated": [pytest.mark.long], "node": [pytest.mark.cluster, pytest.mark.mirror]}


def test_every_scenario_is_run():
    assert {path.parent.name for path in SOURCES.glob("*/molecule.yml")} == {*SCENARIOS}


@pytest.mark.molecule
@pytest.mark.nspawn
@pytest.mark.parametrize("scenario", [pytest.param(name, marks=marks) for name, marks in SCENARIOS.items()])
def test_scenario(scenario, tmp_path):
    # as a user takes them: nothing of the checkout is beside them
    shutil.copytree(SOURCES, tmp_path / "molecule")
    controller = Controller(None, tmp_path)
    words = ["molecule", "test", "--scenario-name", scenario]
    with keep_port() as kept:
        environment = {
            **os.environ,
            "NO_COLOR": "1",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": controller.settings["ANSIBLE_SSH_CONTROL_PATH_DIR"],
            "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "ephemeral"),
            "KUBENODE_MOLECULE_PORT": str(kept.getsockname()[1]),
        }
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "would do on this host" in done.stdout
    assert "Could not match supplied host pattern" not in done.stdout + done.stderr, "a play of it looked at no machine"
