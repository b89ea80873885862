# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What the module preprov_image_build does: live images for a group of hosts, one result a host."""
