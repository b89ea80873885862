# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that speaks to a cluster with a kubeconfig."""

from __future__ import annotations


class ModuleDocFragment:
    """Where the kubeconfig is, and what reads it."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: Path of the kubeconfig. Without it, the usual places are searched.
    type: path
  context:
    description: Context of the kubeconfig, its current one when unset.
    type: str

requirements:
  - kubernetes (Python package)
"""
