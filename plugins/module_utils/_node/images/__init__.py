# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Container images that are to be on a machine: pulled, imported from archives, pinned."""
