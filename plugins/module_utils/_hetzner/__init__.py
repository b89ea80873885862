# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The Hetzner Cloud API for a whole fleet (private to the collection)."""
