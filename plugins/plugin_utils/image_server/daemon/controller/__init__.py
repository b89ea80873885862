# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""PreprovisioningImage objects of a Kubernetes cluster become images: read, decided upon, published, written back."""
