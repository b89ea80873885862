# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: join_plan
short_description: Plans how a machine joins a Kubernetes cluster
version_added: 0.1.0
positional: purpose
description:
  - Checks the variables of the role C(join) and turns them, with what was seen on the machine, into options and
    settings for the modules of this collection. Nothing is read or written.
options:
  _input:
    description:
      - The variables of the role without C(join_), and without the token.
    type: dictionary
    required: true
  purpose:
    description:
      - What to return.
    type: string
    choices:
      inputs: The variables, checked, with their defaults.
      queries: Options for M(kubenode.provision.node_info).
      check: C(options) for M(kubenode.provision.node_join_check), C(warnings), and where C(kubeadm) is when it joins.
        Needs O(node).
      lacks: What the machine needs and was not given, a sentence or nothing. Needs O(seen).
      settings: Settings for M(kubenode.provision.node_settings) that make the machine join. Needs O(node), O(seen), and
        O(token) for a machine that is no node yet.
      secrets: Secrets that belong to these settings. Needs O(node), O(seen) and O(token).
      finished: Settings once the machine has joined. Needs O(node) and O(seen).
      undone: Settings after a join that failed. Needs O(seen).
      absent: Settings of a machine that leaves its cluster. Needs O(seen), of which C(record) is enough.
    required: true
  node:
    description:
      - RV(kubenode.provision.node_info#module:node).
    type: dictionary
  seen:
    description:
      - The result of M(kubenode.provision.node_join_check).
    type: dictionary
  token:
    description:
      - The bootstrap token.
    type: string
    default: ''
  kubelet_version:
    description:
      - The kubelet that the machine will have. The fields and flags that the user gives it are checked for it.
    type: string
    default: ''
  fail:
    description:
      - Whether a variable that is refused fails the task. Otherwise the result is a dictionary with C(refused).
    type: boolean
    default: true
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: What a machine is told
  ansible.builtin.debug:
    msg: "{{ inputs | kubenode.provision.join_plan('settings', node=looked.node, seen=checked) }}"
  vars:
    inputs:
      api_server: https://192.0.2.1:6443
      ca_cert: "{{ lookup('ansible.builtin.file', 'ca.crt') }}"
      labels:
        example.com/rack: r1
"""

RETURN = r"""
_value:
  description: What O(purpose) says.
  type: raw
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.plugin_utils.lazy_import import LazyModule
from ansible_collections.kubenode.provision.plugins.plugin_utils.plain import plain, yaml_value

inputs_ = LazyModule("module_utils._node.join.inputs")
machine = LazyModule("module_utils._node.join.machine")
plan = LazyModule("module_utils._node.join.plan")


_VERSION = re.compile("[0-9]{1,9}[.][0-9]{1,9}[.][0-9]{1,9}")


def join_plan(
    given: Mapping[str, Any],
    purpose: str,
    node: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
    token: str = "",
    kubelet_version: str = "",
    fail: bool = True,
) -> Any:
    """What ``purpose`` says; every error names the variable, its value and the fix."""
    if purpose not in _PURPOSES:
        raise AnsibleFilterError(f"join_plan: {purpose!r} must be one of {', '.join(_PURPOSES)}")
    needs, function = _PURPOSES[purpose]
    for name, value in (("node", node), ("seen", seen)):
        if name in needs and not isinstance(value, Mapping):
            raise AnsibleFilterError(f"join_plan: {purpose} needs {name}")
    try:
        checked = inputs_.checked(inputs_.with_drop_ins(plain(given), yaml_value), str(token or ""))
        if purpose in _TOKEN_OF_THE_USER:
            inputs_.check_one_token(checked, token)
        # a version that is none, the role base refuses
        if _VERSION.fullmatch(str(kubelet_version)) and checked["state"] == "present":
            machine.KubeletOptions(checked, str(kubelet_version)).check()
        return function(checked, plain(node), plain(seen), str(token or ""))
    except inputs_.InvalidInput as error:
        if fail:
            raise AnsibleFilterError(str(error)) from error
        return {"refused": str(error)}


def _check(inputs: dict, node: dict, _seen: dict, token: str) -> dict:
    kubelet = machine.Kubelet(node, inputs)
    # everything that can be refused is refused before the cluster is asked
    kubelet.config()
    kubelet.args()
    joins = inputs["method"] == "kubeadm"
    return {
        "kubeadm": {"path": machine.kubeadm_path(node), "kubelet": kubelet.path} if joins else {},
        "options": {
            "api_server": inputs["api_server"],
            "ca_cert": inputs["ca_cert"],
            "ca_hashes": inputs["discovery"]["ca_hashes"],
            "jws": inputs["discovery"]["jws"] and bool(token),
            "signing": inputs["method"] == "kubeadm" and bool(token),
            "node_name": kubelet.name,
            "machine_id": node.get("machine_id") or "",
            "kubelet_version": kubelet.version,
            "version_check": inputs["version_check"],
            "max_clock_skew": inputs["max_clock_skew"],
            "check_name": inputs["check_name"],
            "timeout": min(30, inputs["timeout"]),
        },
        "warnings": kubelet.warnings(),
    }


def _lacks(inputs: dict, _node: dict, seen: dict, token: str) -> str:
    if not seen["need_bootstrap"] or token or inputs["token_create"]:
        return ""
    why = {"lapsed": "its client certificate has lapsed", "refused": "its client certificate is refused"}
    state = why.get(seen["client"]["state"], "it is no node yet")
    return f"join_token: the machine needs one, since {state}; or set join_token_create"


_PURPOSES: dict[str, tuple[tuple[str, ...], Callable[[Any, Any, Any, str], Any]]] = {
    "inputs": ((), lambda inputs, node, seen, token: inputs),
    "queries": ((), lambda inputs, node, seen, token: machine.queries()),
    "check": (("node",), _check),
    "lacks": (("seen",), _lacks),
    "settings": (("node", "seen"), lambda inputs, node, seen, token: plan.present(node, inputs, seen, _dump)),
    "secrets": (("node", "seen"), lambda inputs, node, seen, token: plan.secrets(node, inputs, seen, token, _dump)),
    "finished": (("node", "seen"), lambda inputs, node, seen, token: plan.finished(node, inputs, seen)),
    "undone": (("seen",), lambda inputs, node, seen, token: plan.undone(seen)),
    "absent": (("seen",), lambda inputs, node, seen, token: plan.absent(seen)),
}


#: Later on, the token may be the one that was made.
_TOKEN_OF_THE_USER = ("inputs", "check")


def _dump(value: dict) -> str:
    return yaml.safe_dump(value, default_flow_style=False, sort_keys=True, allow_unicode=True, width=10000)


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {"join_plan": join_plan}
