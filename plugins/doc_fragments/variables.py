# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """For modules that a playbook of the collection fills from variables."""

    DOCUMENTATION = r"""
options:
  variables:
    description:
      - Names of options, also of those of a machine, and of the variables that hold them. Messages name the variable.
      - The playbooks of this collection set it, since they take the options from variables of hosts.
    type: dict
    default: {}
"""
