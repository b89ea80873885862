# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fifty machines at once on two cores: every one ends with its new system, and the API is asked little."""

import pytest

pytestmark = [pytest.mark.nspawn, pytest.mark.fleet, pytest.mark.timeout(3000)]

SIZE = 50
#: requests a machine: create, arm, start, and a share of what is asked for the whole fleet
REQUESTS = 4


@pytest.mark.parametrize("forks", ["5", "50"])
def test_fifty_cloud_machines_are_provisioned_in_one_run(operator, forks):
    fleet = operator("nspawn")
    names = [f"fleet-{number:02}" for number in range(1, SIZE + 1)]
    fleet.testbed.write_inventory(names)
    fleet.testbed.environment |= {"ANSIBLE_FORKS": forks}
    fleet.run(limit=2700).ok()
    assert len(fleet.asked()) <= REQUESTS * SIZE
    assert sorted(machine["name"] for machine in fleet.report["machines"]) == names
    for name in names:
        assert fleet.boots(name) == ["rescue", "disk"]
        assert fleet.testbed.ssh(name, "hostname").strip() == name

    fleet.run(limit=900).ok()
    assert not fleet.report["changed"]
