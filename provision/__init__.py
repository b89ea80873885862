# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program `provision`: base and join on the machine it runs on, without anything installed there."""
