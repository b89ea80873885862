# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is called verified on dedicated servers, where there may be systems that no run installed."""

import pytest

from tests.integration.consent.conftest import SEEN

pytestmark = pytest.mark.nspawn
#: the system that was asked for never comes; the other one has to be seen in this time
OTHER = ("-e", "kubenode_boot_timeout=90")

FIRST, SECOND = {"kind": "nvme", "size": "3G"}, {"kind": "sata", "size": "4G"}
SERVERS = [
    {"number": 201, "disks": [FIRST, SECOND], "memory_mib": 1024},
    {"number": 202, "disks": [FIRST], "memory_mib": 1024},
]
HINTS = {"first": {"kind": "nvme", "smallest": True}, "second": {"kind": "sata", "smallest": True}}


def host(number, disk):
    return {"kubenode_server_number": number, "kubenode_root_device_hints": HINTS[disk]}


def test_an_old_system_on_another_disk_is_not_the_new_one(dedicated):
    """P2 and C5: the image goes to one disk, the firmware boots the other, and both systems have the same host key."""
    dedicated.servers({"two-1": host(201, "first")})
    assert "kubenode_host_keys" in dedicated.testbed.inventory.read_text(), "what the old system shows, too"
    dedicated.run().ok()
    before = dedicated.record("two-1")

    dedicated.servers({"two-1": host(201, "second")})
    dedicated.run(*SEEN, *OTHER, "-e", '{"kubenode_reinstall": ["two-1"]}').fails()
    assert "another system answers" in dedicated.output or "another disk" in dedicated.output
    assert dedicated.record("two-1") == before
    dedicated.run(*SEEN, *OTHER).fails()
    assert dedicated.record("two-1") == before


def test_the_system_of_a_previous_tenant_is_not_ours(dedicated):
    """P4: it takes our key, and that is all."""
    dedicated.servers({"tenant-1": host(202, "first")}, kubenode_rename=False)
    dedicated.run().ok()
    dedicated.shell("tenant-1", "rm -r /etc/kubenode")
    boots = dedicated.boots("tenant-1")

    elsewhere = str(dedicated.testbed.folder / "elsewhere")
    dedicated.servers({"tenant-1": host(202, "first")}, kubenode_dir=elsewhere)
    dedicated.run(*SEEN).fails().says("kubenode_adopt", "kubenode_reinstall")
    assert dedicated.shell("tenant-1", "ls /etc/kubenode", check=False) == ""
    (machine,) = [one for one in dedicated.control("GET", "/machines")["machines"] if one.get("number") == 202]
    assert machine["name"] != "tenant-1"

    dedicated.run(*SEEN, "-e", '{"kubenode_adopt": true}').ok().says("verified system", ", 0 running a verified system")
    assert dedicated.boots("tenant-1") == boots
