#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_join_wait
short_description: Waits on a machine until its kubelet has joined the cluster
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Waits until the kubelet has its client certificate, then until the Node is registered, asked for with that
    certificate, and on request until the Node is Ready.
  - When that does not happen, says why. What is certain, such as a kubelet that exits or a request that was denied, is
    said at once; the rest when O(timeout) is over.
  - Nothing is changed. The CA of the API server is read from the machine.
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubernetes.joining
attributes:
  check_mode:
    support: full
    details: Does not wait.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  ready:
    description: Whether to wait until the Node is Ready.
    type: bool
    default: false
  kubelet_version:
    description:
      - With O(ready), the version of the kubelet, such as V(1.37.1). What the Node's status says of another one does
        not count.
    type: str
    default: ''
  since:
    description:
      - Older log lines and certificate requests are not looked at. In seconds since 1970 by the machine's clock,
        V(0) means now.
    type: float
    default: 0
  timeout:
    description: Seconds for everything together.
    type: int
    default: 300
seealso:
  - module: kubenode.provision.node_join_check
"""

EXAMPLES = r"""
- name: Wait until the machine is a node
  kubenode.provision.node_join_wait:
    api_server: https://192.0.2.1:6443
    node_name: node-1
    ready: true
    timeout: 120
"""

RETURN = r"""
failure:
  description: Why the machine did not become a node.
  returned: on failure
  type: dict
  contains:
    code:
      description:
        - What is wrong, as one word.
        - One of V(api_unreachable), V(ca_mismatch), V(token_refused), V(csr_forbidden), V(csr_pending),
          V(csr_denied), V(clock_skew), V(kubelet_exited), V(not_ready).
      type: str
      sample: csr_pending
    detail:
      description: What was seen, with the last lines of the kubelet where they help.
      type: str
      sample: the request node-csr-x waits since 2026-11-21T12:00:00Z
seconds:
  description: When each step was reached, in seconds since the module began.
  returned: always
  type: dict
  sample:
    certificate: 1.2
    node: 2.4
node:
  description: The Node.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: node-1
    uid:
      description: Its UID.
      type: str
    ready:
      description: Whether it is Ready.
      type: bool
    kubelet_version:
      description: Version of its kubelet.
      type: str
      sample: v1.36.4
    addresses:
      description: Its addresses.
      type: list
      elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.codes import JoinFailure
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.wait import Wait, node_ready


def argument_spec() -> dict[str, Any]:
    return {
        **api_server.options(),
        "ready": {"type": "bool", "default": False},
        "kubelet_version": {"type": "str", "default": ""},
        "since": {"type": "float", "default": 0},
        "timeout": {"type": "int", "default": 300},
    }


def summary(node: Mapping[str, Any]) -> dict[str, Any]:
    """What the result says of a Node."""
    status = node.get("status") or {}
    return {
        "name": node["metadata"]["name"],
        "uid": node["metadata"].get("uid"),
        "ready": node_ready(node)[0],
        "kubelet_version": (status.get("nodeInfo") or {}).get("kubeletVersion"),
        "addresses": status.get("addresses") or [],
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    api_server.check_address(module)
    if module.check_mode:
        module.exit_json(changed=False, seconds={}, node={})
    wait = Wait(module.params)
    try:
        node = wait.run()
    except JoinFailure as error:
        module.fail_json(msg=str(error), failure=error.result, seconds=wait.seconds)
    module.exit_json(changed=False, seconds=wait.seconds, node=summary(node))


if __name__ == "__main__":
    main()
