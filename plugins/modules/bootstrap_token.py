#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bootstrap_token
short_description: Makes and removes bootstrap tokens of a Kubernetes cluster
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Makes a new bootstrap token with a short life, or removes one. Runs where a kubeconfig of the cluster is, usually on
    the controller.
  - The user of the kubeconfig needs C(create) and C(delete) on Secrets in C(kube-system), and C(get) on Nodes with
    O(node_name).
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubernetes.kubeconfig
attributes:
  check_mode:
    support: full
    details: RV(token) is empty then.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: Every call with O(state=present) makes a new token.
options:
  state:
    description: Whether a new token is to be made, or the one of O(token_id) removed.
    type: str
    choices: [present, absent]
    default: present
  token_id:
    description: The part of a token before its dot.
    type: str
  ttl:
    description: How long the token lives, from V(1m) to V(24h).
    type: str
    default: 15m
  groups:
    description: Groups that the bearer belongs to, beside C(system:bootstrappers).
    type: list
    elements: str
    default: [system:bootstrappers:kubeadm:default-node-token]
  usages:
    description: What the token is for. V(signing) makes the cluster sign C(cluster-info) with it.
    type: list
    elements: str
    choices: [authentication, signing]
    default: [authentication]
  description:
    description: What people read about the token.
    type: str
    default: made by kubenode.provision
  node_name:
    description:
      - The node that the token is for. When there is a Node of this name with another machine ID than O(machine_id), no
        token is made.
    type: str
  machine_id:
    description: What C(/etc/machine-id) of the machine holds.
    type: str
    default: ''
seealso:
  - module: kubenode.provision.node_join_check
"""

EXAMPLES = r"""
- name: A token for one machine
  kubenode.provision.bootstrap_token:
    kubeconfig: ~/.kube/config
    ttl: 10m
    node_name: node-1
  delegate_to: localhost
  register: token
  no_log: true

- name: Take it away again
  kubenode.provision.bootstrap_token:
    kubeconfig: ~/.kube/config
    token_id: "{{ token.token_id }}"
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
token:
  description: The token. Use C(no_log) on the task.
  returned: when O(state=present)
  type: str
token_id:
  description: The part of the token before its dot.
  returned: success
  type: str
  sample: abcdef
expires:
  description: When it ends, in seconds since 1970.
  returned: when O(state=present)
  type: float
  sample: 1800000000.0
name:
  description: The name in O(node_name) is V(free), V(own), or V(unknown).
  returned: when O(state=present)
  type: str
  sample: free
failure:
  description: Why no token was made, with RV(ignore:failure.code) V(name_taken) or V(api_unreachable).
  returned: on failure
  type: dict
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster, codes, tokens


def argument_spec() -> dict[str, Any]:
    return dict(
        cluster.options(),
        state={"type": "str", "choices": ["present", "absent"], "default": "present"},
        token_id={"type": "str", "no_log": False},
        ttl={"type": "str", "default": "15m"},
        groups={"type": "list", "elements": "str", "default": ["system:bootstrappers:kubeadm:default-node-token"]},
        usages={
            "type": "list",
            "elements": "str",
            "choices": ["authentication", "signing"],
            "default": ["authentication"],
        },
        description={"type": "str", "default": "made by kubenode.provision"},
        node_name={"type": "str"},
        machine_id={"type": "str", "default": ""},
    )


def make(module: AnsibleModule) -> dict[str, Any]:
    params, now = module.params, time.time()
    token_id, token_secret = tokens.new_token()
    try:
        ttl = tokens.ttl_seconds(params["ttl"])
        groups, usages = params["groups"], params["usages"]
        body = tokens.token_secret(token_id, token_secret, now, ttl, groups, usages, params["description"])
    except tokens.InvalidToken as error:
        module.fail_json(msg=str(error))
    reached = cluster.Cluster(module)
    name = look_for_name(module, reached) if params["node_name"] else "unknown"
    result = {"changed": True, "token": "", "token_id": "", "expires": now + ttl, "name": name}
    if not module.check_mode:
        reached.create_secret(body)
        result.update(token=f"{token_id}.{token_secret}", token_id=token_id)
    return result


def look_for_name(module: AnsibleModule, reached: cluster.Cluster) -> str:
    """Whether the name of the node is free; fails the module when another machine has it."""
    wanted = module.params["node_name"]
    node = reached.node(wanted)
    if node is None:
        return "free"
    machine_id = module.params["machine_id"]
    if not (machine_id and cluster.is_own(node, machine_id)):
        failure = codes.JoinFailure("name_taken", f"there is a Node {wanted}, which another machine registered")
        module.fail_json(msg=str(failure), failure=failure.result)
    return "own"


def remove(module: AnsibleModule) -> dict[str, Any]:
    try:
        name = tokens.secret_name(module.params["token_id"])
    except tokens.InvalidToken as error:
        module.fail_json(msg=str(error))
    reached = cluster.Cluster(module)
    changed = reached.secret_exists(name) if module.check_mode else reached.delete_secret(name)
    return {"changed": changed, "token_id": module.params["token_id"]}


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(), supports_check_mode=True, required_if=[("state", "absent", ["token_id"])]
    )
    result = make(module) if module.params["state"] == "present" else remove(module)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
