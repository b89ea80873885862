# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose process was killed leaves nothing that the next lab does not remove."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.machines.cgroup import hierarchy
from lab.running import RunningLab

CHECKOUT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys, time
from lab.running import RunningLab
import hcloud
from hcloud.images import Image
from hcloud.server_types import ServerType
lab = RunningLab(kind="nspawn")
lab.open()
client = hcloud.Client(lab.token, api_endpoint=lab.endpoint, poll_interval=0.05, poll_max_retries=3000)
answer = client.servers.create("victim", ServerType(name="cx23"), Image(name="debian-12"))
for action in (answer.action, *answer.next_actions):
    action.wait_until_finished()
print(json.dumps({"disks": str(lab.lab.backend.disks)}), flush=True)
time.sleep(600)
"""


def traces(disks):
    """What the kernel still knows of a lab: processes in its control group, mounts, loop devices."""
    loops = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=True).stdout
    return {
        "processes": (hierarchy() / f"kubenode-lab-{disks.name}").exists(),
        "mounts": str(disks) in Path("/proc/mounts").read_text(),
        "loops": str(disks) in loops,
        "files": disks.exists(),
    }


@pytest.mark.nspawn
def test_killed_lab(tmp_path, monkeypatch):
    # the disks, too: any lab that a test beside this one opens sweeps those in its own folder
    monkeypatch.setenv("KUBENODE_LAB_DIR", str(tmp_path / "labs"))
    monkeypatch.setenv("KUBENODE_DISKS", str(tmp_path / "disks"))
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=CHECKOUT, stdout=subprocess.PIPE)
    disks = Path(json.loads(process.stdout.readline())["disks"])
    assert all(traces(disks)[what] for what in ("processes", "loops", "files")), traces(disks)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert traces(disks)["files"], "nobody has cleaned up yet"
    (left,) = (tmp_path / "labs").iterdir()
    with RunningLab(kind="nspawn") as lab:
        assert not any(traces(disks).values()), traces(disks)
        assert not left.exists()
        own = lab.lab.backend.disks
    assert not any(traces(own).values()), traces(own)
    assert list((tmp_path / "labs").iterdir()) == []
