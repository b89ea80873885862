#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: installimage_check
short_description: Checks images, layouts, bootstrap data and the SSH key of a fleet for installimage
version_added: 1.0.0
description:
  - Examines on the controller what M(kubenode.provision.robot_installimage) and
    M(kubenode.provision.pre_provision_command) will be given for each machine, before a server is touched. One message
    lists everything that is wrong, each with machine, field, value and what to do.
  - What only the rescue knows, such as firmware and disks, is looked at there.
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
      image:
        description: See M(kubenode.provision.robot_installimage).
        type: dict
        required: true
        suboptions:
          name:
            description: See M(kubenode.provision.robot_installimage).
            type: str
          path:
            description: See M(kubenode.provision.robot_installimage).
            type: str
          url:
            description: See M(kubenode.provision.robot_installimage).
            type: str
          file:
            description: See M(kubenode.provision.robot_installimage).
            type: str
          digest:
            description: See M(kubenode.provision.robot_installimage).
            type: str
      require_digest:
        description: See M(kubenode.provision.robot_installimage).
        type: bool
        default: true
      oci_registry_auth_token:
        description: See M(kubenode.provision.robot_installimage). Only its form is looked at.
        type: str
      swraid:
        description: See M(kubenode.provision.robot_installimage).
        type: int
        choices: [0, 1]
        default: 0
      swraid_level:
        description: See M(kubenode.provision.robot_installimage).
        type: int
        choices: [0, 1, 5, 6, 10]
        default: 1
      partitions:
        description: See M(kubenode.provision.robot_installimage).
        type: list
        elements: dict
        default: []
        suboptions:
          mount:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          filesystem:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          size:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          crypt:
            description: See M(kubenode.provision.robot_installimage).
            type: bool
            default: false
      logical_volumes:
        description: See M(kubenode.provision.robot_installimage).
        type: list
        elements: dict
        default: []
        suboptions:
          vg:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          name:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          mount:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          filesystem:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          size:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
      subvolumes:
        description: See M(kubenode.provision.robot_installimage).
        type: list
        elements: dict
        default: []
        suboptions:
          volume:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          subvolume:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
          mount:
            description: See M(kubenode.provision.robot_installimage).
            type: str
            required: true
      hostname:
        description: See M(kubenode.provision.robot_installimage).
        type: str
      post_install_script:
        description: See M(kubenode.provision.robot_installimage).
        type: str
      bootstrap_data:
        description: See M(kubenode.provision.robot_installimage).
        type: raw
      bootstrap_data_file:
        description: See M(kubenode.provision.robot_installimage).
        type: path
      crypt_password:
        description: See M(kubenode.provision.robot_installimage).
        type: str
      remote_unlock:
        description: See M(kubenode.provision.robot_installimage).
        type: bool
        default: false
      autosetup:
        description: See M(kubenode.provision.robot_installimage).
        type: dict
        default: {}
      network_config:
        description: See M(kubenode.provision.robot_installimage).
        type: str
        choices: [rescue, image]
        default: rescue
      uefi:
        description: See M(kubenode.provision.robot_installimage).
        type: str
        choices: [auto, 'true', 'false']
        default: auto
      command:
        description: See M(kubenode.provision.robot_installimage).
        type: str
        default: /root/.oldroot/nfs/install/installimage
      root_device_hints:
        description: See M(kubenode.provision.machine_disks). Only how many disks they choose is looked at.
        type: dict
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
    description: Directory in which the pre-provision commands lie. A link that leads out of the directory is refused.
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
  - module: kubenode.provision.robot_installimage
  - module: kubenode.provision.pre_provision_command
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Check everything before the first server is reset
  kubenode.provision.installimage_check:
    machines:
      - name: node-1
        image:
          url: https://images.example.com/Debian-1300-trixie-amd64-node.tar.zst
          digest: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
        swraid: 1
        root_device_hints:
          raid:
            wwn: ["0x5002538d40aa0001", "0x5002538d40aa0002"]
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
    image:
      description: The image, without user info and query of a URL.
      type: str
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
    options.action_only("installimage_check", options.installimage_check_spec())


if __name__ == "__main__":
    main()
