# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kubeadm is given. kubeadm itself is not at hand: field names are those of kubeadm.k8s.io/v1beta4."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.filter.join_plan import join_plan

from ._machines import Authority, machine, seen

TOKEN = "abcdef.0123456789abcdef"
GIVEN = {
    "api_server": "https://[2001:db8::1]:6443",
    "ca_cert": Authority().pem,
    "method": "kubeadm",
    "labels": {"example.com/rack": "r1"},
    "taints": ["dedicated=gpu:NoSchedule"],
    "kubelet_config": {"maxPods": 50, "serverTLSBootstrap": None},
    "kubelet_extra_args": {"v": 4},
    "timeout": 90,
}


def test_configuration_of_kubeadm():
    secrets = join_plan(GIVEN, "secrets", node=machine(), seen=seen(), token=TOKEN)
    assert yaml.safe_load(secrets["kubeadm-join"]) == {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": "[2001:db8::1]:6443",
                "token": TOKEN,
                "caCertHashes": ["sha256:" + "0" * 64],
            }
        },
        "nodeRegistration": {
            "name": "node-1",
            "criSocket": "unix:///run/containerd/containerd.sock",
            "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
            "kubeletExtraArgs": [
                {"name": "node-labels", "value": "example.com/rack=r1"},
                {"name": "v", "value": "4"},
            ],
        },
        "patches": {"directory": "/etc/kubernetes/kubenode-patches"},
        "timeouts": {"tlsBootstrap": "1m30s"},
    }


def test_files_of_kubeadm():
    listed = join_plan(GIVEN, "settings", node=machine(), seen=seen(), token=TOKEN)
    files = {one["path"]: one for one in listed if one["kind"] == "file"}
    assert set(files) == {
        "/etc/kubernetes/kubenode-patches/kubeletconfiguration+merge.yaml",
        "/etc/kubernetes/kubelet.env",
        "/run/kubenode/kubeadm-join.yaml",
    }
    # kubeadm starts the kubelet itself
    assert not [one for one in listed if one["kind"] == "unit"]
    assert (files["/run/kubenode/kubeadm-join.yaml"]["mode"], TOKEN in str(listed)) == ("0600", False)
    patch = yaml.safe_load(files["/etc/kubernetes/kubenode-patches/kubeletconfiguration+merge.yaml"]["content"])
    assert patch["maxPods"] == 50
    assert patch["serverTLSBootstrap"] is None  # a merge patch takes a field away by null
    assert "authentication" not in patch  # the cluster's own kubelet-config says so
    assert "--kubeconfig=/etc/kubernetes/kubelet.conf" in files["/etc/kubernetes/kubelet.env"]["content"]


def test_a_node_of_kubeadm_is_left_alone():
    client = {"state": "valid", "server": GIVEN["api_server"]}
    listed = join_plan(GIVEN, "settings", node=machine(), seen=seen(need_bootstrap=False, client=client))
    assert [one["path"] for one in listed if one["kind"] == "file"] == [
        "/etc/kubernetes/pki/ca.crt",
        "/etc/kubenode/join.json",
    ]


def test_kubeadm_is_too_old():
    with pytest.raises(AnsibleFilterError, match=r"kubeadm needs Kubernetes 1.31 or newer"):
        join_plan(GIVEN, "settings", node=machine("1.30.1"), seen=seen(), token=TOKEN)
