# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The image server as a program: its flags, what it publishes, and its life as a process."""
