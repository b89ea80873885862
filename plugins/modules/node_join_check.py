#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_join_check
short_description: Checks on a machine whether it can join a Kubernetes cluster
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Looks from the machine at the API server of the cluster it is to join. Proves the server by its CA, by pins of
    the CA's public key, or by the signature of C(kube-public/cluster-info). Compares versions and clocks.
  - Says whether the machine's kubelet has a client certificate that the API server accepts, and so whether a
    bootstrap token is needed.
  - Tries the token, when one is given, and looks whether the name of the node is free.
  - Nothing is written, neither on the machine nor in the cluster.
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubernetes.joining
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  ca_cert:
    description:
      - The certificate of the cluster's CA in PEM. Several may follow each other.
      - Without it, O(ca_hashes), or O(jws) with O(token), must prove what C(cluster-info) says.
    type: str
    default: ''
  ca_hashes:
    description:
      - Pins of the CA's public key, each C(sha256:) and 64 hexadecimal digits. With O(ca_cert) it must match one.
    type: list
    elements: str
    default: []
  jws:
    description: Whether the signature of C(cluster-info) by O(token) is checked.
    type: bool
    default: false
  signing:
    description:
      - Whether O(token) must have signed C(cluster-info), as kubeadm wants it.
      - Does not count for a machine that is a node already.
    type: bool
    default: false
  token:
    description:
      - The bootstrap token. Without it nothing is said of token and name, unless the machine is a node already.
    type: str
    default: ''
  machine_id:
    description: What C(/etc/machine-id) holds. A Node of that name with this machine ID is taken for the machine's own.
    type: str
    default: ''
  kubelet_version:
    description: Version of the installed kubelet, to be compared with the API server's.
    type: str
    default: ''
  version_check:
    description: Whether a kubelet that does not fit the API server is refused or warned of.
    type: str
    choices: [refuse, warn]
    default: refuse
  max_clock_skew:
    description: Seconds that the clocks of machine and API server may differ by.
    type: int
    default: 30
  check_name:
    description: Whether a name that another machine registered is an error.
    type: bool
    default: true
  timeout:
    description: Seconds for everything together.
    type: int
    default: 30
seealso:
  - module: kubenode.provision.node_join_wait
  - module: kubenode.provision.bootstrap_token
"""

EXAMPLES = r"""
- name: Can this machine join?
  kubenode.provision.node_join_check:
    api_server: https://192.0.2.1:6443
    ca_cert: "{{ lookup('ansible.builtin.file', 'ca.crt') }}"
    node_name: node-1
    kubelet_version: 1.36.4
"""

RETURN = r"""
failure:
  description: Why the machine cannot join.
  returned: on failure
  type: dict
  contains:
    code:
      description:
        - What is wrong, as one word.
        - One of V(api_unreachable), V(ca_mismatch), V(pin_mismatch), V(discovery_signature), V(token_refused),
          V(csr_forbidden), V(name_taken), V(clock_skew), V(version_skew), V(joined_elsewhere).
      type: str
      sample: ca_mismatch
    detail:
      description: What was seen.
      type: str
      sample: the certificate of https://192.0.2.1:6443 was not signed by the CA given
need_bootstrap:
  description: Whether the machine needs a bootstrap token to become a node.
  returned: success
  type: bool
need_registration:
  description: Whether the machine has a certificate, but its Node was deleted, so that the kubelet must be restarted.
  returned: success
  type: bool
ca_cert:
  description: The CA that was proven, in PEM.
  returned: success
  type: str
ca_hashes:
  description: The pins of its public keys.
  returned: success
  type: list
  elements: str
  sample: ['sha256:5e1d…']
server_version:
  description: Version of the API server, empty when it does not report it.
  returned: success
  type: str
  sample: v1.36.4
clock_skew:
  description: Seconds that the API server's clock is ahead, V(null) when it does not report the time.
  returned: success
  type: float
  sample: 0.0
token:
  description: V(accepted) by the API server, V(unknown) when it was not tried, or V(none) was given.
  returned: success
  type: str
  sample: accepted
name:
  description: The name of the node is V(free), V(own), V(taken) or V(unknown).
  returned: success
  type: str
  sample: free
client:
  description: The kubelet's client certificate.
  returned: success
  type: dict
  contains:
    state:
      description: V(none), V(valid), V(lapsed), or V(refused) by the API server.
      type: str
      sample: valid
    not_after:
      description: When it ends, in seconds since 1970.
      type: float
      sample: 1800000000.0
    node:
      description: The node it is for.
      type: str
      sample: node-1
    server:
      description: The API server the kubelet speaks to.
      type: str
      sample: https://192.0.2.1:6443
node:
  description: The Node of that name.
  returned: success
  type: dict
  contains:
    kubelet_version:
      description: The version that its kubelet has reported, V(null) when that is not known.
      type: str
      sample: v1.36.4
    cordoned_by:
      description: Who has cordoned it, as M(kubenode.provision.cluster_drain) notes, V(null) when that is not known.
      type: str
      sample: kubenode.provision/node_upgrade
    exists:
      description: Whether it exists, V(null) when that is not known.
      type: bool
    ready:
      description: Whether it is Ready.
      type: bool
    machine_id:
      description: The machine ID it was registered with.
      type: str
record:
  description: The facts file of an earlier join, V(null) without one.
  returned: success
  type: dict
present:
  description: Files of a join that are there already.
  returned: success
  type: list
  elements: str
time:
  description: The machine's clock when the module began, in seconds since 1970.
  returned: always
  type: float
  sample: 1800000000.0
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.check import Check
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.codes import JoinFailure


def argument_spec() -> dict[str, Any]:
    return {
        **api_server.options(),
        "ca_cert": {"type": "str", "default": ""},
        "ca_hashes": {"type": "list", "elements": "str", "default": []},
        "signing": {"type": "bool", "default": False},
        "jws": {"type": "bool", "default": False},
        "token": {"type": "str", "default": "", "no_log": True},
        "machine_id": {"type": "str", "default": ""},
        "kubelet_version": {"type": "str", "default": ""},
        "version_check": {"type": "str", "choices": ["refuse", "warn"], "default": "refuse"},
        "max_clock_skew": {"type": "int", "default": 30},
        "check_name": {"type": "bool", "default": True},
        "timeout": {"type": "int", "default": 30},
    }


def check_options(module: AnsibleModule) -> None:
    """Fail with the name of the option that cannot be."""
    params = module.params
    api_server.check_address(module)
    try:
        params["ca_hashes"] = [api_server.check_pin(pin) for pin in params["ca_hashes"]]
    except ValueError as error:
        module.fail_json(msg=f"ca_hashes: {error}")
    try:
        if params["token"]:
            api_server.split_token(params["token"])
    except ValueError as error:
        module.fail_json(msg=f"token: {error}")
    if not params["ca_cert"] and not params["ca_hashes"] and not (params["jws"] and params["token"]):
        module.fail_json(msg="ca_cert: there is no CA to trust; give ca_cert, ca_hashes, or jws with a token")


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    check_options(module)
    began = time.time()
    check = Check(module.params)
    try:
        result = check.run()
    except JoinFailure as error:
        module.fail_json(msg=str(error), failure=error.result, time=began, present=check.result["present"])
    for text in check.warnings:
        module.warn(text)
    module.exit_json(changed=False, time=began, **result)


if __name__ == "__main__":
    main()
