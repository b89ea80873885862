# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fifty machines cost: requests counted by the lab, not by us."""

from __future__ import annotations

import time

from tests.integration.hcloud.conftest import Project

MACHINES = 50


def test_fifty_machines_cost_at_most_three_and_a_half_requests_each(lab, tmp_path):
    project = Project(lab(profile="hetzner", seed=1), tmp_path, "deploy")
    project.forget_requests()
    made = project.run(
        "hcloud_machine",
        machines=[project.machine(f"n{number:02}") for number in range(MACHINES)],
        ssh_private_key=str(project.key),
        wait=False,
    )
    armed = project.run(
        "hcloud_rescue",
        machines=made.result["machines"],
        ssh_keys=["deploy"],
        ssh_private_key=str(project.key),
        prove=False,
    )
    counted = len(project.requests())
    assert not made.failed
    assert not armed.failed, armed.result["msg"]
    assert counted == made.result["api_calls"] + armed.result["api_calls"]
    assert counted <= 3.5 * MACHINES
    assert {machine["boot_state"] for machine in armed.result["machines"]} == {"BootingToRescue"}


def test_a_short_budget_is_paced_and_never_overdrawn(project):
    began = time.monotonic()
    project.lab.control("POST", "/bucket", {"remaining": 6})
    project.forget_requests()
    run = project.run("hcloud_machine", machines=[project.machine(f"p{number}") for number in range(8)])
    assert not run.failed, run.output
    statuses = [request["status"] for request in project.requests()]
    assert len(statuses) >= 12
    assert 429 not in statuses
    # What was missing came back at one request a second.
    assert time.monotonic() - began > len(statuses) - 6 - 1
