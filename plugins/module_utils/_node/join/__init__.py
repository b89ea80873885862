# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Joining a machine to a cluster: inputs, checks, plan, waiting, failures."""
