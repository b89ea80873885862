# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules that boot machines into their rescue have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """How systems are reached by SSH, and what to do about one that differs."""

    DOCUMENTATION = r"""
options:
  access:
    description:
      - How the installed systems are reached where that differs from the rescue, which is C(root) on port 22. Each has
        the C(name) of its machine, and any of C(os_user), C(os_port), C(os_private_key) and C(host_keys). A system that
        shows none of its C(host_keys) is not C(proven).
      - C(ssh_args) are more arguments for the SSH client to this machine, rescue and system, such as those of its jump
        host.
    type: list
    elements: dict
    default: []
  ssh_args:
    description:
      - More arguments for the SSH client, to all machines, for example C(-J bastion.example.com). Options that the
        module sets itself cannot be changed.
    type: str
    default: ''
  known_hosts_dir:
    description:
      - Directory for the host keys of this run, one file C(NAME.rescue) for each machine.
      - Without it, a temporary directory is used and removed at the end.
    type: path
  drift:
    description: What becomes of a machine that runs something else than O(wanted).
    type: str
    choices:
      report: It is left alone, and the result says so.
      fail: It fails.
    default: report
"""
