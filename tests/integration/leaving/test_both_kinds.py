# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_delete and robot_release in one command line: each takes its own machines, and no other one."""

import pytest

from tests.integration.accounts import CloudAccount, RobotAccount
from tests.integration.runs import QUICK

DELETE, RELEASE = "kubenode.provision.hcloud_delete", "kubenode.provision.robot_release"


@pytest.fixture
def accounts(lab_dry, tmp_path):
    folders = [tmp_path / f"both-{kind}" for kind in ("cloud", "robot")]
    for folder in folders:
        folder.mkdir()
    cloud, robot = CloudAccount(lab_dry, folders[0]), RobotAccount(lab_dry, folders[1])
    yield cloud, robot
    cloud.close()
    robot.stop()


@pytest.mark.parametrize("order", [(DELETE, RELEASE), pytest.param((RELEASE, DELETE), marks=pytest.mark.long)])
def test_each_takes_its_own_machines(accounts, order):
    cloud, robot = accounts
    names = ["cloud-1", "cloud-2"]
    machines = [{"name": name, "server_type": "cx23", "ssh_keys": [cloud.key_name]} for name in names]
    assert cloud.process("hcloud_machine", machines=machines).rc == 0
    robot.add("metal-1", "metal-2")
    for name in robot.numbers:
        robot.arm(name)
        cloud.hosts[name] = {"kubenode_server_number": robot.numbers[name], "kubenode_look_timeout": 0}
        cloud.hosts[name]["ansible_host"] = robot.row(name)["address"]
    cloud.hosts.update({name: {"ansible_user": "root"} for name in names})
    boots = {name: robot.boots(name) for name in robot.numbers}
    words = {"kubenode_delete": ["cloud-1"], "kubenode_release": ["metal-1"], "kubenode_ignore_unreachable": True}

    done = cloud.play(order[0], order[1], env=QUICK, kubenode_dir=str(cloud.folder / "kubenode"), **words).ok()
    assert set(cloud.servers()) & set(names) == {"cloud-2"}
    assert [robot.rescue_of(name)["active"] for name in ("metal-1", "metal-2")] == [False, True]
    assert ({name: robot.boots(name) for name in robot.numbers}, robot.resets("metal-1")) == (boots, [])
    for untouched in ("cloud-2", "metal-2"):
        assert not any(entry["host"] == untouched for entry in done.results if entry["result"].get("changed"))
