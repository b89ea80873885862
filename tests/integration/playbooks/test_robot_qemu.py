# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""installimage with nothing left out: an array over two disks, volumes on it, a boot loader that finds them again."""

from __future__ import annotations

import pytest

from dev import demo_robot

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(2400)]

#: An emulated processor needs its time; nothing is asserted about it.
PATIENCE = {"kubenode_boot_timeout": 1500, "kubenode_give_back_after": 0}


def test_a_mirrored_server_boots_from_its_own_disks(dedicated):
    name = demo_robot.BY_INSTALLIMAGE
    (server,) = [one for one in demo_robot.SERVERS if one["number"] == demo_robot.NUMBERS[name]]
    lab = dedicated("qemu", [server])
    stage = lab.stage
    group = demo_robot.inventory(stage)["by_installimage"]
    group["vars"] |= PATIENCE
    stage.playbook = "kubenode.provision.robot_installimage"
    stage.write_groups({"by_installimage": group})
    assert lab.run(limit=2300) == 0, lab.output
    looks = (
        "hostname; cat /etc/kubenode-proof; findmnt -no SOURCE /; findmnt -no FSTYPE /var/lib/data; cat /proc/mdstat"
    )
    hostname, proof, root, data, *arrays = stage.ssh(name, looks).splitlines()
    assert (hostname, proof) == (name, "made by the bootstrap data")
    assert (root, data) == ("/dev/mapper/vg0-root", "xfs")
    both = [line for line in arrays if line.startswith("md") and "raid1" in line]
    # Boot partition and physical volume, each on both disks.
    assert len(both) == 2
    assert all("sda" in line and "sdb" in line for line in both)
    (machine,) = stage.machines()
    assert [boot["source"] for boot in machine["boots"]][-2:] == ["rescue", "disk"]
