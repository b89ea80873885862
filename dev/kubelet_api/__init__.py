# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the tables of kubelet flags and KubeletConfiguration fields from a checkout of Kubernetes' sources."""
