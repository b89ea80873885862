# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What happens on a machine that becomes a Kubernetes node."""
