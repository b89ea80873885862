# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hcloud_delete on a machine that we installed; the API server is a double."""

import pytest

from .kubernetes_double import ApiDouble, node, pod

pytestmark = [pytest.mark.nspawn, pytest.mark.long]


def test_an_installed_machine_leaves_before_its_server_goes(cloud, tmp_path):
    testbed, api = cloud.testbed, ApiDouble(tmp_path)
    testbed.write_inventory(["leaves-1"])
    cloud.run().ok()
    testbed.playbook = "kubenode.provision.hcloud_delete"
    unit = "[Service]\\nExecStart=/bin/sleep infinity\\n"
    testbed.ssh(
        "leaves-1",
        f"printf '{unit}' > /etc/systemd/system/kubelet.service && systemctl start kubelet && "
        "mkdir -p /etc/kubernetes && "
        'touch /etc/kubernetes/kubelet.conf && echo \'{"node_name": "its-node"}\' > /etc/kubenode/join.json',
    )
    api.add(node("its-node", testbed.ssh("leaves-1", "cat /etc/machine-id").strip()), pod("web", "its-node"))
    seen = []

    def meanwhile(method, path):
        if method != "GET":
            state = testbed.ssh("leaves-1", "systemctl is-active kubelet; ls /etc/kubernetes/kubelet.conf 2>&1; true")
            seen.append((method, path.split("?")[0].split("/")[-1], state.split()[0], "No such file" in state))

    api.meanwhile = meanwhile
    given = ("-e", '{"kubenode_delete": ["leaves-1"]}', "-e", f"kubenode_kubeconfig={api.kubeconfig}")
    cloud.run(*given, "--check").ok()
    assert seen == []
    cloud.run(*given).ok()
    assert seen == [
        ("PATCH", "its-node", "active", False),
        ("POST", "eviction", "active", False),
        ("DELETE", "its-node", "inactive", True),
    ]
    assert (api.nodes, api.pods) == ({}, {})
    assert [one["name"] for one in testbed.machines()] == []
    assert "1 pods evicted, left its cluster, Node its-node deleted, deleted, forgotten here" in cloud.output
    assert not list((testbed.folder / "kubenode").glob("*/leaves-1.*"))
    api.close()
