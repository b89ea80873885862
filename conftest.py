# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loaded for every pytest run from this checkout; the fixtures live in tests/."""

pytest_plugins = ["dev.pytest_collection", "dev.pytest_suites"]
