#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_inventory
short_description: Keeps an inventory of the machines that runs have proven
version_added: 1.0.0
description:
  - A machine that was made by one run has an address that no name server knows and host keys that no user has
    accepted. This task writes both into a small inventory, so that every later play reaches the machine
    (C(ansible-playbook -i inventory.yml -i kubenode/inventory.yml)), from any folder.
  - Several runs may write the same file at the same time; each changes its own machines.
  - A file that this module did not write stays as it is. That, and one that cannot be written, is a warning.
  - Runs on the controller and contacts no machine.
options:
  path:
    description: The inventory. Its folder is made.
    type: path
    required: true
  hosts:
    description:
      - For the name of each machine that is proven its variables, such as C(ansible_host). They replace those
        that the file has of it.
    type: dict
    default: {}
  gone:
    description: Names of machines that are no more.
    type: list
    elements: str
    default: []
  known:
    description:
      - Machines that a run on another controller has proven, as RV(known) of this module was there. Their host keys
        are pinned in the folder C(known_hosts) beside O(path), and they are put into the inventory.
      - What is known here of a machine stays. One whose pinned host keys are others is an error, and then nothing is
        written.
    type: dict
    default: {}
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
attributes:
  check_mode:
    support: full
    details: Writes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.machine_install
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Keep how a machine is reached
  kubenode.provision.machine_inventory:
    path: kubenode/inventory.yml
    hosts:
      node-1:
        ansible_host: 203.0.113.5
        ansible_ssh_extra_args: -oUserKnownHostsFile=/srv/kubenode/known_hosts/node-1.os -oHostKeyAlias=node-1.os

- name: Reach machines as a run on another controller did
  kubenode.provision.machine_inventory:
    path: kubenode/inventory.yml
    known:
      node-1:
        address: 203.0.113.5
        boot_id: 3f0c8a52-8a4e-4a53-9d0a-3d0a5f6a3a11
        host_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKc0V2yFQ8l9Z0a3Yy1vM8hXo1bW0o6b6Yq4m8m9u6hT]

- name: Forget one
  kubenode.provision.machine_inventory:
    path: kubenode/inventory.yml
    gone: [node-1]
"""

RETURN = r"""
path:
  description: The inventory.
  type: str
  returned: always
msg:
  description: How it is used; empty when no machine was put into it.
  type: str
  returned: always
known:
  description:
    - For the name of each of O(hosts) how another controller reaches it. C(address), where there is one; the public
      C(host_keys) that are pinned and the C(boot_id) in which they were proven, where they were.
  type: dict
  returned: always
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("machine_inventory", options.machine_inventory_spec())


if __name__ == "__main__":
    main()
