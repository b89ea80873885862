# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The plan of base: facts of a machine and the role's variables in, settings, packages and artifacts out (pure)."""
