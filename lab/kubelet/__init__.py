# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the kubelet of current minors: one executable file a version."""

from lab.kubelet.bundle import UnknownVersion, build

#: what the lab's mirror offers
VERSIONS = ("1.34.11", "1.35.8", "1.36.4")

__all__ = ["VERSIONS", "UnknownVersion", "build"]
