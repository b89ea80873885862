# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Speaking to the Kubernetes API with the standard library only."""
