# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ctrl-C and kill: the module ends at once and changes nothing any more; the next run goes on."""

import signal
from pathlib import Path

import pytest

from tests.integration.hcloud.test_node_image import snapshots, wanted
from tests.waiting import until


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
    run = project.start_module("localhost", "hcloud_rescue", **options)
    run.until(lambda: project.commands("n1")[-1] == project.commands("n2")[-1] == "enable_rescue", "the arming of both")
    run.interrupt()
    until(lambda: not alive(run.process.pid), "the end of every process of the run")
    asked = project.requests()
    project.forget_faults()
    until(lambda: all(server["rescue_enabled"] for server in project.servers().values()), "the end of the arming")
    assert {server["status"] for server in project.servers().values()} == {"off"}
    assert not [one for one in asked if one["path"].endswith(("/poweron", "/reset", "/reboot"))]

    project.run("hcloud_rescue", **{**options, "machines": [{"name": "n1"}, {"name": "n2"}]}).ok()
    assert {server["status"] for server in project.servers().values()} == {"running"}


@pytest.mark.parametrize("flags", [(), ("--become", "--become-method=su")], ids=["", "become"])
def test_a_run_that_was_killed_makes_no_node_image(project, flags):
    """Ansible's workers and the modules that they have started live on when it is killed."""
    project.run("hcloud_machine", machines=[project.machine("n1")], state="started").ok()
    project.fault(point="action", command="shutdown_server", effect="stuck", times=1)
    image = wanted(server="n1", running="shutdown")
    run = project.start_module("localhost", "hcloud_node_image", *flags, images=[image])
    run.until(lambda: project.commands("n1")[-1] == "shutdown_server", "the shutdown")
    run.interrupt(signal.SIGKILL)
    project.end_of_all()
    assert snapshots(project) == {}
    assert not [one for one in project.requests() if one["path"].endswith("/create_image")]
