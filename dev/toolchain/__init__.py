# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool chain behind dev/setup, dev/run and dev/lint (Python 3.9, standard library only)."""
