# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What every part of the collection may import; it imports nothing of ours."""
