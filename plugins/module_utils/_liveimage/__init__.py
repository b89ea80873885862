# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Live images: CoreOS ISOs and initramfs that differ from host to host (private to the collection)."""
