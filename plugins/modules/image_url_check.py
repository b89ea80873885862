#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_url_check
short_description: Checks image URLs, image commands, bootstrap data and the SSH key of a fleet
version_added: 1.0.0
description:
  - Examines on the controller what M(kubenode.provision.image_url_command) and
    M(kubenode.provision.pre_provision_command) will be given for each machine, before anything is created. One message
    lists everything that is wrong, each with machine, field, value and what to do.
  - An image command that is shipped with the collection is asked whether it takes the image URL. A command of a user's
    own gets any URL.
  - Changes nothing and contacts no machine.
options:
  machines:
    description: The machines.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the machine.
        type: str
        required: true
      address:
        description: Where the machine is reached, when that is said. No two machines may have the same.
        type: str
      drift:
        description: The option O(kubenode.provision.hcloud_rescue#module:drift) of the next step, V(report) or V(fail).
        type: raw
      image_url:
        description: See M(kubenode.provision.image_url_command).
        type: str
      command:
        description: See M(kubenode.provision.image_url_command).
        type: str
      command_names:
        description: See M(kubenode.provision.image_url_command).
        type: str
        choices: [prefixed, any]
        default: prefixed
      require_digest:
        description: See M(kubenode.provision.image_url_command).
        type: bool
        default: false
      bootstrap_data:
        description: See M(kubenode.provision.image_url_command).
        type: raw
      bootstrap_data_file:
        description: See M(kubenode.provision.image_url_command).
        type: path
      oci_registry_auth_token:
        description: See M(kubenode.provision.image_url_command).
        type: str
      root_devices:
        description: See M(kubenode.provision.image_url_command).
        type: list
        elements: str
        default: [sda]
      pre_provision_command:
        description: See O(kubenode.provision.pre_provision_command#module:command). Not set or empty, there is none.
        type: str
      pre_provision_timeout:
        description: See O(kubenode.provision.pre_provision_command#module:timeout).
        type: raw
      os_user:
        description: See M(kubenode.provision.machine_boot).
        type: raw
      os_port:
        description: See M(kubenode.provision.machine_boot).
        type: raw
      os_private_key:
        description: See M(kubenode.provision.machine_boot).
        type: raw
  command_dir:
    description:
      - Directory in which image commands and pre-provision commands lie. An image command that is shipped with this
        collection is found by its name when the directory lacks it. A link that leads out of the directory is refused.
    type: path
    default: /shared
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
  - kubenode.provision.hetzner.check
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: Nothing is changed.
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.image_url_command
  - module: kubenode.provision.pre_provision_command
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Check everything before the first server is created
  kubenode.provision.image_url_check:
    machines:
      - name: node-1
        image_url: https://images.example.com/debian.raw.zst
        command: image-url-command-raw-disk
        bootstrap_data_file: user-data.yml
      - name: node-2
        image_url: oci://registry.example.com/images/node:v1
        command: image-url-command-oci
    command_dir: /srv/image-commands
    ssh_private_key: ~/.ssh/id_ed25519
"""

RETURN = r"""
machines:
  description: One result for each machine, in the order of O(machines).
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the machine.
      type: str
      returned: always
    failed:
      description: Whether something is wrong with this machine.
      type: bool
      returned: always
    msg:
      description: Everything that is wrong with this machine.
      type: str
      returned: always
    image_url:
      description: The image URL without user info, query and fragment.
      type: str
      returned: when nothing is wrong
    command_path:
      description: Where the image command was found; C(kubenode.provision/NAME) for one that comes with the collection.
      type: str
      returned: when nothing is wrong
    command_sha256:
      description: Its SHA-256 digest.
      type: str
      returned: when nothing is wrong
    command_shipped:
      description: Whether it is shipped with this collection.
      type: bool
      returned: when nothing is wrong
    pre_provision_path:
      description: Where the pre-provision command was found.
      type: str
      returned: when there is one
api_calls:
  description: Always 0.
  type: int
  returned: always
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("image_url_check", options.image_url_check_spec())


if __name__ == "__main__":
    main()
