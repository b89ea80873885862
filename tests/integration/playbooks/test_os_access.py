# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new system that lets in neither root nor our key, on another port: the rescue stays root on 22."""

import subprocess

import pytest
import yaml

from tests.key_pairs import key_pair

pytestmark = [pytest.mark.nspawn, pytest.mark.long]


def test_a_system_of_another_user_port_and_key_is_proven_and_found_again(nspawn):
    testbed = nspawn.testbed
    key = testbed.folder / "admin_key"
    public = key_pair(key)
    testbed.write_inventory(["admin-1"])
    (settings,) = [one["vars"] for one in yaml.safe_load(testbed.inventory.read_text()).values()]
    with open(settings["kubenode_bootstrap_data_file"], encoding="utf-8") as file:
        data = yaml.safe_load(file)
    del data["ssh_authorized_keys"]
    admin = {
        "name": "admin",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "shell": "/bin/sh",
        "ssh_authorized_keys": [public],
    }
    port = {"path": "/etc/ssh/sshd_config.d/port.conf", "content": "Port 2222\n"}
    data.update(users=[admin], disable_root=True, write_files=[*data["write_files"], port])
    bootstrap = testbed.folder / "admin.yml"
    bootstrap.write_text("#cloud-config\n" + yaml.safe_dump(data))
    access = {"kubenode_os_user": "admin", "kubenode_os_port": 2222, "kubenode_os_private_key": str(key)}
    testbed.write_inventory(["admin-1"], kubenode_bootstrap_data_file=str(bootstrap), **access)
    nspawn.run().ok()
    words = ["ssh", "-F", "none", "-oBatchMode=yes", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"]
    words += ["-oLogLevel=ERROR", "-p", "2222", "-i", str(key), f"admin@{testbed.address('admin-1')}"]
    record = subprocess.run([*words, "cat /etc/kubenode/installed.json"], capture_output=True, text=True, check=True)
    assert "verified_at" in record.stdout

    del access["kubenode_os_port"]
    testbed.write_inventory(["admin-1"], kubenode_bootstrap_data_file=str(bootstrap), ansible_port=2222, **access)
    nspawn.run().ok()
    assert not nspawn.report["changed"], nspawn.output
    testbed.write_inventory(["admin-1"], kubenode_bootstrap_data_file=str(bootstrap), kubenode_os_port="ssh")
    nspawn.run().fails().says("kubenode_os_port: 'ssh' is no port")
