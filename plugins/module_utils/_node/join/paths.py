# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Where a join keeps its files."""

from __future__ import annotations

ETC = "/etc/kubernetes"
CA = ETC + "/pki/ca.crt"
BOOTSTRAP_KUBECONFIG = ETC + "/bootstrap-kubelet.conf"
KUBECONFIG = ETC + "/kubelet.conf"
KUBELET_ENV = ETC + "/kubelet.env"
DROP_INS = ETC + "/kubelet.conf.d"
PATCHES = ETC + "/kubenode-patches"
KUBELET_DIR = "/var/lib/kubelet"
CONFIG = KUBELET_DIR + "/config.yaml"
KUBEADM_FLAGS = KUBELET_DIR + "/kubeadm-flags.env"
PKI = KUBELET_DIR + "/pki"
CLIENT_PEM = PKI + "/kubelet-client-current.pem"
CNI = "/etc/cni/net.d/10-kubenode.conflist"
RECORD = "/etc/kubenode/join.json"
KUBEADM_JOIN = "/run/kubenode/kubeadm-join.yaml"

#: What a failed first join may have made, and what leaving removes.
MADE = (BOOTSTRAP_KUBECONFIG, KUBECONFIG, CONFIG, KUBEADM_FLAGS, KUBELET_ENV, CNI, KUBEADM_JOIN, RECORD, CA)
#: Folders of the same kind.
MADE_FOLDERS = (DROP_INS, PATCHES, PKI)
#: What the kubelet itself keeps in its folder of one cluster and its pods: a node of the next one must not read it.
STATE = tuple(
    KUBELET_DIR + "/" + name
    for name in (
        "actuated_pods_state",
        "allocated_pods_state",
        "checkpoints",
        "cpu_manager_state",
        "device-plugins",
        "dra_manager_state",
        "image_manager",
        "instance-config.yaml",
        "memory_manager_state",
        "plugins",
        "plugins_registry",
        "pod-resources",
        "pods",
    )
)
