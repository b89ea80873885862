# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: join_plan
short_description: Plans how a machine joins a Kubernetes cluster
version_added: 1.0.0
positional: purpose
description:
  - This filter is the role's own. It may change with any release; plays of a user's own call the role.
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
      variables: The names of the role's variables that the plan reads, without C(join_).
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
  inventory_dir:
    description:
      - The folder of the inventory, beside which paths of the controller are looked for first.
    type: string
  search:
    description:
      - Further folders where they are looked for, usually C(ansible_search_path).
    type: list
    elements: string
    default: []
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Show what is set on a machine
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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.plugin_utils.plain import plain

#: purpose → what it needs besides the variables
_NEEDS = {
    "check": ("node",),
    "lacks": ("seen",),
    "settings": ("node", "seen"),
    "secrets": ("node", "seen"),
    "finished": ("node", "seen"),
    "undone": ("seen",),
    "absent": ("seen",),
}


def join_plan(
    given: Mapping[str, Any],
    purpose: str,
    node: Mapping[str, Any] | None = None,
    seen: Mapping[str, Any] | None = None,
    token: str = "",
    kubelet_version: str = "",
    fail: bool = True,
    inventory_dir: str | None = None,
    search: Sequence[str] = (),
) -> Any:
    """What ``purpose`` says; every error names the variable, its value and the fix."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import join_inputs, kubelet
    from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import join_plan as plan

    if purpose == "variables":
        return [name for name in join_inputs.variables() if name != "ca_file"]
    node_, seen_, secret = plain(node), plain(seen), str(token or "")
    answers: dict[str, Callable[[Any], Any]] = {
        "inputs": lambda inputs: inputs,
        "queries": lambda inputs: kubelet.queries(),
        "check": lambda inputs: plan.check(node_, inputs, secret),
        "lacks": lambda inputs: plan.lacks(inputs, seen_, secret),
        "settings": lambda inputs: plan.present(node_, inputs, seen_),
        "secrets": lambda inputs: plan.secrets(node_, inputs, seen_, secret),
        "finished": lambda inputs: plan.finished(node_, inputs, seen_),
        "undone": lambda inputs: plan.undone(seen_),
        "absent": lambda inputs: plan.absent(seen_),
    }
    if purpose not in answers:
        raise AnsibleFilterError(f"join_plan: {purpose!r} must be one of variables, {', '.join(answers)}")
    for name, value in (("node", node), ("seen", seen)):
        if name in _NEEDS.get(purpose, ()) and not isinstance(value, Mapping):
            raise AnsibleFilterError(f"join_plan: {purpose} needs {name}")
    try:
        # later than the check, the token may be the one that was made
        users_own = purpose in ("inputs", "check")
        return answers[purpose](
            plan.checked_inputs(plain(given), secret, str(kubelet_version), users_own, inventory_dir, search)
        )
    except join_inputs.InvalidInput as error:
        if fail:
            raise AnsibleFilterError(str(error)) from error
        return {"refused": str(error)}


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        """Filters by name."""
        return {"join_plan": join_plan}
