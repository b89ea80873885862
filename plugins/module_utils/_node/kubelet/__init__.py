# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What kubelets of each minor version accept: flags, configuration, names."""
