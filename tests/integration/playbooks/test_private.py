# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with private addresses only, made of an image and reached through a jump host."""

import json

import pytest

from dev.testbed import KEY_NAME
from tests.integration.accounts import cloud_call

pytestmark = [pytest.mark.nspawn, pytest.mark.long]


def test_a_private_machine_is_reached_through_a_jump_host(nspawn):
    testbed = nspawn.testbed
    subnets = [{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.1.0/24"}]
    network = {"name": "cluster", "ip_range": "10.0.0.0/16", "subnets": subnets}
    cloud_call(testbed.lab["endpoint"], testbed.token, "POST", "/networks", network)
    testbed.playbook = "kubenode.provision.hcloud_image_name"
    settings = {
        **testbed.ssh_settings(), "kubenode_server_type": "cx23", "kubenode_location": "fsn1",
        "kubenode_ssh_keys": [KEY_NAME], "kubenode_image_name": "debian-12",
    }  # fmt: skip
    known = f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={testbed.folder}/bastion"
    way = f"ssh -i {testbed.private_key} {known} -W %h:%p root@BASTION"
    hosts = {
        "bastion": {"kubenode_networks": ["cluster"]},
        "inside": {
            "kubenode_networks": [{"name": "cluster", "ip": "10.0.1.11"}],
            "kubenode_enable_ipv4": False,
            "kubenode_enable_ipv6": False,
        },
    }
    inventory = {"machines": {"hosts": hosts, "vars": settings}}
    testbed.inventory.write_text(json.dumps(inventory))
    nspawn.run("--limit", "bastion").ok()
    # without a way there, nothing is created
    nspawn.run("--limit", "inside").fails().says("this controller has no route of its own to 10.0.0.0/16")
    assert nspawn.boots("inside") == []
    way = way.replace("BASTION", testbed.machine("bastion")["address"])
    hosts["inside"]["ansible_ssh_common_args"] = f'-o ProxyCommand="{way}"'
    testbed.inventory.write_text(json.dumps(inventory))
    made = nspawn.run("--limit", "inside").ok()
    assert nspawn.boots("inside") == ["disk"]
    (stats,) = [one["result"]["ansible_stats"]["data"] for one in made.results if "ansible_stats" in one["result"]]
    handed_on = stats["kubenode_known_machines"]
    assert {name: one["address"] for name, one in handed_on.items()} == {"inside": "10.0.1.11"}
    pinned = (testbed.folder / "kubenode/known_hosts/inside.os").read_text()
    assert all(f"inside.os {key}\n" in pinned for key in handed_on["inside"]["host_keys"])
    nspawn.run("--limit", "inside").ok()
