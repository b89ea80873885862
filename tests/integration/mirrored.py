# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role base downloads, from the lab's mirror."""

from typing import Any

from lab import cluster, mirror


def mirrored(lab: Any, suite: str = "trixie") -> dict[str, Any]:
    """Variables of base with which everything comes from the lab's mirror, in versions that it has for a suite."""
    containerd, runc = {"trixie": ("1.7.24", "1.1.15"), "bookworm": ("1.6.20", "1.1.5")}[suite]
    return {
        "base_mirror": lab.mirror_url,
        "base_checksums": mirror.checksums("containerd", "runc", "cni-plugins", "crictl", "kubelet"),
        "base_kubernetes_version": "1.36.4",
        "base_containerd_version": containerd,
        "base_runc_version": runc,
        "base_cni_plugins_version": "1.1.1",
        # Debian's containerd is older than what Kubernetes 1.36 wants
        "base_version_check": "warn",
    }


def real(lab: Any, version: str) -> dict[str, Any]:
    """The same with the real crictl and a kubelet that starts, of `lab.cluster`; for tests marked ``cluster``."""
    names = ("containerd", "runc", "cni-plugins", "crictl", "kubelet", "kubeadm")
    return {
        **mirrored(lab),
        "base_checksums": mirror.checksums(*names, real={version, cluster.KUBERNETES}),
        "base_kubernetes_version": version,
        "base_containerd_version": "2.1.9",
        "base_runc_version": "1.3.6",
        "base_cni_plugins_version": "1.9.1",
        "base_crictl_version": cluster.CRICTL,
    }
