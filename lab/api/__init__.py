# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Hetzner Cloud API v1, stateful and wire-exact, in front of machines that really boot."""
