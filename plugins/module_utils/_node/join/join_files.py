# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Where a join keeps its files, and its kubeconfigs, which are JSON, since every reader of YAML reads it (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ..._common.text import json_value

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


_SERVER = re.compile(r"^[ \t]*(?:-[ \t]*)?\"?server\"?:\s*[\"']?([^\s\"',]+)", re.MULTILINE)


def bootstrap(server: str, token: str) -> str:
    """The text of the bootstrap kubeconfig; it holds the token."""
    return _kubeconfig(server, {"token": token})


def final(server: str) -> str:
    """The text of a kubeconfig that uses the client certificate the kubelet keeps fresh."""
    return _kubeconfig(server, {"client-certificate": CLIENT_PEM, "client-key": CLIENT_PEM})


def server_of(text: str) -> str | None:
    """The server of a kubeconfig with one cluster, as the kubelet writes it; None when it names none."""
    found = _SERVER.search(text)
    return found.group(1).rstrip("/") if found else None


def token_of(text: str) -> tuple[str, str]:
    """(server, token) of a text of :func:`bootstrap`; raise ValueError for another text."""
    try:
        config = json_value(text)
        return config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError("the bootstrap kubeconfig was not written by the role join") from None


def _kubeconfig(server: str, user: Mapping[str, str]) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": {"server": server, "certificate-authority": CA}}],
        "users": [{"name": "kubelet", "user": user}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "kubelet", "namespace": "default"}}],
        "current-context": "default",
    }
    return json.dumps(config, indent=2) + "\n"
