# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The one error of the plan."""

from __future__ import annotations


class PlanError(ValueError):
    """Inputs that no machine could be prepared with; the text names each variable, its value and the fix."""
