# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What makes a machine this machine, and what it no longer needs as an image: found, then removed."""
