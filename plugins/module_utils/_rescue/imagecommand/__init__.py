# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Image commands: raw_disk, rootfs_tar and oci are programs, the other modules what they share."""
