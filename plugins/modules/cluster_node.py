#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_node
short_description: Deletes the Node of a machine that left its cluster
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Deletes a Node. Nothing is drained; do that before, with M(kubenode.provision.cluster_drain).
  - Runs where a kubeconfig of the cluster is, usually on the controller. Its user needs C(get) and C(delete) on Nodes.
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubernetes.kubeconfig
  - kubenode.provision.kubernetes.own_node
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description: The name of the node.
    type: str
    required: true
seealso:
  - module: kubenode.provision.cluster_drain
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
name:
  description: The name of the Node that was looked for, or found.
  returned: success
  type: str
  sample: node-1
existed:
  description: Whether there was a Node of that name.
  returned: success
  type: bool
own:
  description: Whether that Node is the machine's own.
  returned: success
  type: bool
machine_id:
  description: The machine ID with which that Node was registered.
  returned: when RV(existed)
  type: str
ready:
  description: Whether that Node is Ready.
  returned: when RV(existed)
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster, drain


def main() -> None:
    spec = dict(cluster.options(), **cluster.owner_options(), name={"type": "str", "required": True})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    params, reached = module.params, cluster.Cluster(module)
    node, mine = cluster.find_own(reached, params)
    if node is None:
        module.exit_json(changed=False, existed=False, own=False, name=params["name"])
    if not mine:
        module.warn(f"the Node {params['name']} was not registered by this machine and is left alone")
    changed, there = mine, node or {}
    if mine and not module.check_mode:
        changed = reached.delete_node(there)
    machine_id = ((there.get("status") or {}).get("nodeInfo") or {}).get("machineID") or ""
    about = {"name": params["name"], "machine_id": machine_id, "ready": drain.is_ready(there)[0]}
    module.exit_json(changed=changed, existed=True, own=mine, **about)


if __name__ == "__main__":
    main()
