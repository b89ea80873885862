# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a checkout needs and a user of the collection does not: set-up, lint, test tool chain."""
