# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs at the same time: never over the same machine."""

import os
import signal
from pathlib import Path

import pytest

from ansible_collections.kubenode.provision.plugins.action.machine_lock import Locks, this_run
from tests.integration.controller import Controller
from tests.integration.runs import children
from tests.integration.testbeds import NOWHERE
from tests.waiting import until


@pytest.fixture(scope="module")
def dry(operator):
    """A lab whose machines never answer, so that a run waits for them."""
    lab = operator("dry")
    lab.testbed.image_url = lambda: NOWHERE
    return lab


def writes(lab):
    return [request for request in lab.asked() if request["method"] != "GET"]


def test_a_machine_of_another_run_is_refused_until_that_run_is_gone(dry):
    dry.testbed.write_inventory(["shared-1", "one-1"])
    first = dry.start()
    first.until("TASK [Write the disks")
    until(lambda: children(first.process.pid), "the SSH phase")
    before = writes(dry)
    dry.testbed.write_inventory(["shared-1", "two-1"])
    checked = dry.start("--check")
    checked.until("TASK [Create the machines")
    checked.kill()
    checked.wait().says(f"shared-1: another run works on it (process {first.process.pid} of this controller")
    dry.run().fails().says("leave it out: --limit 'all:!shared-1'. Nothing was changed")
    assert writes(dry) == before
    assert first.process.poll() is None

    workers = children(first.process.pid)
    assert workers
    os.kill(first.process.pid, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{worker}/task").exists() for worker in workers), "the end of what it had begun")
    second = dry.start()
    second.until("TASK [Create the machines")
    second.kill()


@pytest.mark.parametrize("playbook", ["node", "node_base", "node_join", "node_upgrade"])
def test_a_node_of_another_run_is_refused(playbook, tmp_path):
    """On the controller itself: nothing is changed on it."""
    controller = Controller(None, tmp_path)
    here = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    controller.hosts = {"here-1": here}
    wrong = {"kubenode_dir": str(tmp_path / "kubenode"), "base_kubernetes_version": "1.x", "join_api_server": "nowhere"}
    Locks(f"{tmp_path}/kubenode/locks").take(["here-1"], this_run(os.getpid()))
    refused = controller.play(f"kubenode.provision.{playbook}", **wrong).fails()
    refused.says(f"here-1: another run works on it (process {os.getpid()} of this controller")
    Locks(f"{tmp_path}/kubenode/locks").release(["here-1"], this_run(os.getpid()))
    after = controller.play(f"kubenode.provision.{playbook}", **wrong).fails()
    assert "another run" not in after.output
    after.says("join_api_server" if playbook in ("node", "node_join") else "base_kubernetes_version")
    assert (tmp_path / "kubenode/locks/here-1.json").is_file()


@pytest.mark.parametrize("name", ["Here_1", "127.0.0.2"])
def test_a_name_that_cannot_be_locked_stops_no_node(name, tmp_path):
    controller = Controller(None, tmp_path)
    controller.hosts = {name: {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}}
    kept = str(tmp_path / "kubenode")
    controller.play("kubenode.provision.node_base", kubenode_dir=kept, base_kubernetes_version="1.x").fails().says(
        "base_kubernetes_version"
    )
