# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Settings of a machine: planned as a whole, then applied in order."""
