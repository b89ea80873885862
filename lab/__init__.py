# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An emulated Hetzner Cloud with machines that really boot. See README.md here."""
