# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine that a module runs on: its programs, its files, and the pending restarts of its services."""
