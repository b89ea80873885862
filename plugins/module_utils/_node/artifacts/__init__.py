# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Files from the network: verified, installed atomically, proven later without network."""
