# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real control plane for a lab: etcd and the current Kubernetes.

`ensure()` builds the programs once from Go modules, or raises `Unavailable`; `ControlPlane` runs them beside a lab's
machines, and tests and the command line use `RunningCluster`.
"""

from __future__ import annotations

from lab.errors import ClusterError, Unavailable

from .programs import (
    CONTAINERD,
    CONTAINERD_PROGRAMS,
    CRICTL,
    KUBERNETES,
    NODE_PROGRAMS,
    OLDEST,
    PAUSE_TAGS,
    Programs,
    ensure,
    ensure_containerd,
    ensure_crictl,
    ensure_node,
    ensure_tools,
)  # fmt: skip

__all__ = [
    "CONTAINERD", "CONTAINERD_PROGRAMS", "CRICTL", "KUBERNETES", "NODE_PROGRAMS", "OLDEST", "PAUSE_TAGS",
    "ClusterError", "Programs", "Unavailable", "ensure", "ensure_containerd", "ensure_crictl", "ensure_node",
    "ensure_tools",
]  # fmt: skip
