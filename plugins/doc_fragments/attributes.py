# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules of this collection promise, in the vocabulary of Ansible's attributes."""

from __future__ import annotations


class ModuleDocFragment:
    """Attribute descriptions; every module states its own support."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    description:
      - Will return details on what has changed (or possibly needs changing in C(check_mode)), when in diff mode.
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no
        change.
      - This assumes that the system controlled/queried by the module has not changed in a relevant way.
"""

    ACTIONGROUP_KUBENODE = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/kubenode.provision.kubenode) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - kubenode.provision.kubenode
"""

    FLOW = r"""
options: {}
attributes:
  action:
    description:
      - Indicates this has a corresponding action plugin so some parts of the options can be executed on the
        controller.
    support: full
  async:
    description: Supports being used with the C(async) keyword.
    support: none
"""

    # Modules that end with the run they belong to.
    OWN_RUN = r"""
options:
  run_socket:
    description:
      - Name of an abstract Unix socket (Linux) on which the run of Ansible listens. The module sends no further request
        and ends when it is closed, since its run was killed and the next one may be at work.
      - By default, a task that runs on the controller itself has one of its own, also when it becomes another user. One
        that is asynchronous or runs on another host has none, and goes on to its end when its run is killed.
    type: str
"""
