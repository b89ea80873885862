# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What containers cannot show of a node: modules, controllers of its own kernel, and swap that was not configured."""

import pytest

from lab.running import RunningLab

pytestmark = [pytest.mark.qemu, pytest.mark.mirror, pytest.mark.timeout(4800)]


def test_kernel_of_a_node_swaps_loads_modules_and_controls_resources(lab_qemu: RunningLab) -> None:
    node = lab_qemu.node("kernel", swap="256M", cloud_init=False)
    swaps = node.run("tail -n +2 /proc/swaps").splitlines()
    assert [line.split()[:2] for line in swaps] == [["/dev/sda3", "partition"]], "systemd found it by itself"
    assert node.run("grep -c swap /etc/fstab || true") == "0"
    node.run("modprobe --all overlay br_netfilter nf_conntrack zram && test -b /dev/zram0")
    assert node.run("cat /proc/sys/net/bridge/bridge-nf-call-iptables") == "1"
    controllers = set(node.run("cat /sys/fs/cgroup/cgroup.controllers").split())
    assert {"cpu", "cpuset", "io", "memory", "pids"} <= controllers
    node.run("set -e; mkdir /l /u /w /m; mount -t overlay -o lowerdir=/l,upperdir=/u,workdir=/w overlay /m; umount /m")
    node.run("echo 64M >/sys/block/zram0/disksize; mkswap -q /dev/zram0; swapon /dev/zram0; swapoff -a")
    assert node.run("tail -n +2 /proc/swaps") == ""
    lab_qemu.remove("kernel")
