#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: the Node objects of machines that leave."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_node
short_description: Deletes the Node of a machine that left its cluster
version_added: 0.1.0
author: kubenode.provision authors (@kubenode)
description:
  - Deletes a Node. Nothing is drained; do that before, with C(kubectl drain).
  - Runs where a kubeconfig of the cluster is, usually on the controller. Its user needs C(get) and C(delete) on Nodes.
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubeconfig
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description:
      - The name of the node.
    type: str
    required: true
  machine_id:
    description:
      - What C(/etc/machine-id) of the machine holds. When given, only a Node that was registered with it is deleted.
    type: str
    default: ''
seealso:
  - module: kubenode.provision.bootstrap_token
"""

EXAMPLES = r"""
- name: The machine is gone
  kubenode.provision.cluster_node:
    kubeconfig: ~/.kube/config
    name: node-1
  delegate_to: localhost
"""

RETURN = r"""
existed:
  description: Whether there was a Node of that name.
  returned: success
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster


def is_of_another(node, machine_id):
    """Whether a Node is not proven to be the machine's; without an id to compare, the name is the proof."""
    info = node.status.node_info if node.status else None
    return bool(machine_id) and (info is None or info.machine_id != machine_id)


def main():
    """Run the module."""
    spec = dict(
        cluster.options(),
        name={"type": "str", "required": True},
        machine_id={"type": "str", "default": ""},
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    reached = cluster.Cluster(module)
    name, machine_id = module.params["name"], module.params["machine_id"]
    node = reached.node(name)
    changed = node is not None
    if changed and is_of_another(node, machine_id):
        module.warn("the Node %s was not registered by this machine and is left alone" % name)
        changed = False
    if changed and not module.check_mode:
        changed = reached.delete_node(node)
    module.exit_json(changed=changed, existed=node is not None)


if __name__ == "__main__":
    main()
