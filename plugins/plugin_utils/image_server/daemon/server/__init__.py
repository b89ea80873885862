# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Overlays over HTTP: whole or in ranges, to any number of readers at once."""
