# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules that do something in a rescue, by which the server is known."""

from __future__ import annotations


class ModuleDocFragment:
    """Whose rescue it must be, how far the machine is; and what is written."""

    DOCUMENTATION = r"""
options:
  addresses:
    description:
      - Public addresses of the machine's server, IPv4 addresses or IPv6 networks. A rescue that has none of them is
        another server's, and nothing is done there.
      - By default, the addresses of the rescue are not checked.
    type: list
    elements: str
  boot_state:
    description: Boot state of the machine when the task begins, as the step before returned it.
    type: str
    default: BootingToRescue
  boot_state_since:
    description:
      - Since when the machine is in O(boot_state), as the step before returned it.
      - The default is the begin of the task.
    type: str
  machine_name:
    description:
      - Name of the machine.
      - The default is the name of the host in the inventory.
    type: str
  previous_boot_id:
    description:
      - Boot id of the system that was seen before the reset. As long as it answers, the rescue has not been reached.
    type: str
  rescue_timeout:
    description: Seconds to wait until the rescue answers by SSH.
    type: int
    default: 360
"""

    INSTALLATION = r"""
options:
  bootstrap_data_file:
    description: File on the controller that holds the bootstrap data. It may be encrypted by Ansible Vault.
    type: path
  installation:
    description:
      - Id of the installation, 32 hexadecimal digits, as M(kubenode.provision.hcloud_rescue) or
        M(kubenode.provision.robot_rescue) returned it. The command finds it in the environment variable
        E(KUBENODE_INSTALLATION) and in C(/root/.kubenode/installation); the new system shows it in its record.
      - The default is a new one.
    type: str
  intent_file:
    description:
      - File with the intent that the module which armed the rescue wrote. It is put into the rescue, so that another
        controller can go on.
    type: path
  reinstall:
    description:
      - Names of machines that may be written again, or a dictionary of names and installations, for O(consent=named).
    type: raw
    default: []
"""
