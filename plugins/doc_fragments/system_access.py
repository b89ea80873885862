# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How modules that boot rescues reach the systems that are installed."""

from __future__ import annotations


class ModuleDocFragment:
    """The option access."""

    DOCUMENTATION = r"""
options:
  access:
    description:
      - How the installed systems are reached where that differs from the rescue, which is C(root) on port 22. Each has
        the C(name) of its machine, and any of C(os_user), C(os_port), C(os_private_key) and C(host_keys). A system that
        shows none of its C(host_keys) is not C(proven).
    type: list
    elements: dict
    default: []
"""
