# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real control plane for a lab: etcd, kube-apiserver and kube-controller-manager 1.20.2.

`ensure()` builds the programs once from Debian's packages, `ControlPlane` runs them beside a lab's machines, and
`RunningCluster` is what tests and the command line hold in their hands.
"""

from __future__ import annotations

from .errors import ClusterError
from .programs import KUBERNETES, PAUSE_TAGS, Programs, ensure, ensure_tools

__all__ = ["KUBERNETES", "PAUSE_TAGS", "ClusterError", "Programs", "ensure", "ensure_tools"]
