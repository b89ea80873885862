# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ctrl-C: the module ends at once and changes nothing any more; the next run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def alive(group: int) -> bool:
    """Whether a process of this group still runs."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            return True
    return False


def test_an_interrupted_run_leaves_machines_that_the_next_run_takes_on(project):
    made = project.run("hcloud_machine", machines=[project.machine("n1"), project.machine("n2")])
    project.fault(point="action", command="enable_rescue", effect="stuck", times=2)
    options = {"machines": made.result["machines"], "ssh_keys": ["deploy"], "prove": False}
    process = subprocess.Popen(
        ["ansible", "localhost", "-m", "kubenode.provision.hcloud_rescue", "-a", json.dumps(options)],
        env={**os.environ, **project.lab.env, "ANSIBLE_REMOTE_TEMP": str(project.folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_for(lambda: project.commands("n1")[-1] == project.commands("n2")[-1] == "enable_rescue")
    # The terminal signals the whole foreground group.
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=20)
    wait_for(lambda: not alive(process.pid))
    project.lab.control("DELETE", "/faults")
    wait_for(lambda: project.servers()["n1"]["rescue_enabled"] and project.servers()["n2"]["rescue_enabled"])
    time.sleep(1)
    assert {server["status"] for server in project.servers().values()} == {"off"}

    again = project.run("hcloud_rescue", **{**options, "machines": [{"name": "n1"}, {"name": "n2"}]})
    assert not again.failed, again.printed
    assert {server["status"] for server in project.servers().values()} == {"running"}
