# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A root file system becomes a file: an archive that is the same for the same tree, or a raw disk image."""
