# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs at the same time: never over the same machine."""

import os
import signal
from pathlib import Path

import pytest

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


def children(pid):
    return [int(task) for path in Path(f"/proc/{pid}/task").glob("*/children") for task in path.read_text().split()]


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
