# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job with nothing left out: kernel, initramfs, partition table and boot loader of the written disk."""

import pytest

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(7200)]

#: An emulated processor needs its time; nothing is asserted about it.
PATIENCE = {"kubenode_rescue_timeout": 1800, "kubenode_command_timeout": 3600, "kubenode_boot_timeout": 1800}


def test_a_whole_machine_boots_what_was_written(operator):
    lab = operator("qemu")
    testbed = lab.testbed
    testbed.write_inventory(["whole-1"], **PATIENCE)
    lab.run(limit=7000).ok()
    assert lab.boots("whole-1") == ["rescue", "disk"]
    hostname, proof, kernel, root = testbed.ssh(
        "whole-1", "hostname; cat /etc/kubenode-proof; cat /proc/cmdline; findmnt -no SOURCE /"
    ).splitlines()
    assert (hostname, proof) == ("whole-1", "made by the bootstrap data")
    # A boot loader from the disk started this kernel, and the root is a partition of the disk that was written.
    assert "BOOT_IMAGE=" in kernel
    assert root.startswith("/dev/sda")
    (machine,) = lab.report["machines"]
    assert machine["boot_state"] == "OperatingSystemRunning"
    size = int(testbed.ssh("whole-1", "lsblk -bno SIZE $(findmnt -no SOURCE /)"))
    # The image has 1 GiB; the root partition was grown to the machine's disk.
    assert size > 30 * 2**30
