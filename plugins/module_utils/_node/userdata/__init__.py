# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a new machine is given for its first boot, and what its values must look like."""
