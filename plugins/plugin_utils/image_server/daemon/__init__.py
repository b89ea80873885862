# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The image server as a program: what it is told, what it publishes, and how it lives."""
