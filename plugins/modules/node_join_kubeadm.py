#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_join_kubeadm
short_description: Runs kubeadm join, and says why it failed
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Runs C(kubeadm join) with a configuration file. Runs on the machine as root.
  - The role C(join) writes the file and calls this module with O(ignore:join_method=kubeadm).
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
    support: none
    details: A machine that is a node already is refused by kubeadm's preflight checks.
options:
  kubeadm:
    description: Where the program is. C(PATH) may lack its folder, under C(sudo) above all.
    type: str
    default: kubeadm
  kubelet:
    description: Where the kubelet is. kubeadm looks for it in C(PATH), to which this folder is added.
    type: str
    default: ''
  config:
    description: Path of a C(JoinConfiguration) on the machine.
    type: path
    default: /run/kubenode/kubeadm-join.yaml
  timeout:
    description:
      - Seconds that the configuration gives each of kubeadm's waits.
      - For as long C(kubeadm join) is run again when its only complaint is that the container runtime answered late. It
        gives the runtime two seconds, which nothing can change, and a slow machine may need more.
    type: int
    default: 300
seealso:
  - module: kubenode.provision.node_join_check
  - module: kubenode.provision.node_join_wait
"""

EXAMPLES = r"""
- name: Let kubeadm join
  kubenode.provision.node_join_kubeadm:
    kubeadm: /usr/local/bin/kubeadm
    kubelet: /usr/local/bin/kubelet
    api_server: https://192.0.2.1:6443
    node_name: node-1
"""

RETURN = r"""
failure:
  description: Why kubeadm failed.
  returned: on failure
  type: dict
  contains:
    code:
      description:
        - V(kubeadm_failed), or V(discovery_signature) when the token did not sign.
        - When kubeadm waited for the kubelet in vain, one of the codes of M(kubenode.provision.node_join_wait).
      type: str
      sample: kubeadm_failed
    detail:
      description: What kubeadm said, its failed checks with their names.
      type: str
      sample: 'its checks: Port-10250: Port 10250 is in use'
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.host import Done, Host
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import codes
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.codes import JoinFailure
from ansible_collections.kubenode.provision.plugins.module_utils._node.join.wait import Wait

#: kubeadm waits for discovery, the kubelet and its certificate, one after the other.
_WAITS = 3
#: seconds for all else, such as its questions to the API server
_BESIDES = 600


def argument_spec() -> dict[str, Any]:
    return {
        **api_server.options(),
        "kubeadm": {"type": "str", "default": "kubeadm"},
        "kubelet": {"type": "str", "default": ""},
        "config": {"type": "path", "default": "/run/kubenode/kubeadm-join.yaml"},
        "timeout": {"type": "int", "default": 300},
    }


def failed(params: Mapping[str, Any], done: Done, began: float) -> JoinFailure:
    """The :class:`JoinFailure` of a kubeadm that ended with ``done``; it began at ``began``."""
    said = codes.failure(done.code, done.err)
    if not said.of_kubelet:
        return JoinFailure(said.code, said.detail)
    asked = {name: params[name] for name in ("api_server", "node_name", "timeout")}
    why = Wait(dict(asked, since=began)).no_certificate()
    return JoinFailure(why.code, f"{why.detail} (kubeadm: {said.detail})")


def join(host: Host, params: Mapping[str, Any]) -> Done:
    """Run kubeadm; again, in its time, where it gave up on a slow runtime."""
    limit, end = _WAITS * params["timeout"] + _BESIDES, time.monotonic() + params["timeout"]
    while True:
        done = host.run([params["kubeadm"], "join", "--config", params["config"]], limit)
        late = done.code != 0 and codes.failure(done.code, done.err).runtime_late
        if not late or time.monotonic() >= end:
            return done


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params, host, began = module.params, Host(), time.time()
    api_server.check_address(module)
    if module.check_mode:
        module.exit_json(changed=True)
    if os.path.isabs(params["kubelet"]):
        os.environ["PATH"] = os.path.dirname(params["kubelet"]) + os.pathsep + os.environ.get("PATH", "/usr/bin:/bin")
    done = join(host, params)
    if done.code:
        failure = failed(params, done, began)
        module.fail_json(msg=str(failure), failure=failure.result)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
