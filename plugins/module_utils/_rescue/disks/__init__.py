# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The disks of a machine: what they are, what they hold, which are meant, and how they are emptied."""
