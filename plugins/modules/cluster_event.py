#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_event
short_description: Posts Kubernetes Events
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Posts Events (C(v1)) on a Node, a ConfigMap, or a Machine of Cluster API, so that C(kubectl get events) and
    C(kubectl describe) show what became of a machine.
  - The same O(events[].reason), O(events[].type) and O(events[].subject) for the same object again raise the count of
    the Event that is there, with the new message, and add none.
  - Runs where a kubeconfig of the cluster is, usually on the controller. Its user needs C(create), C(get) and C(patch)
    on Events in the namespace of the objects (C(default) for Nodes). C(get) on the objects is of use, so that
    C(kubectl describe) finds the Events.
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubernetes.kubeconfig
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Object, reason, message and count of each Event.
  idempotent:
    support: none
    details: An Event says that something happened. Every call counts it once more.
options:
  events:
    description: The Events.
    type: list
    elements: dict
    required: true
    suboptions:
      object:
        description: What the Event is about.
        type: dict
        required: true
        suboptions:
          kind:
            description:
              - V(Machine) is that of Cluster API (C(cluster.x-k8s.io)).
              - A ConfigMap and a Machine must exist. A Node may come later.
            type: str
            choices: [Node, ConfigMap, Machine]
            required: true
          name:
            description: Its name.
            type: str
            required: true
          namespace:
            description: Its namespace. A Node has none.
            type: str
            default: default
          api_version:
            description:
              - Its API version, such as C(cluster.x-k8s.io/v1beta1). By default, the one that the cluster prefers.
            type: str
      reason:
        description: Why, as one word in CamelCase.
        type: str
        required: true
      type:
        description: Whether the Event is about a trouble.
        type: str
        choices: [Normal, Warning]
        default: Normal
      text:
        description: What happened, for people.
        type: str
        required: true
      output:
        description:
          - Lines that a program printed. As many of the last ones follow the text as fit into the 1024 bytes that
            the API takes.
        type: list
        elements: str
        default: []
      subject:
        description:
          - What distinguishes Events of one object, such as the name of a machine when many report to one ConfigMap.
        type: str
        default: ''
  on_error:
    description: Whether the task fails when an Event cannot be posted.
    type: str
    choices:
      fail: It fails.
      report: It does not. A warning says why, and no further Event is tried once the cluster does not answer.
    default: fail
seealso:
  - module: kubenode.provision.machine_install
"""

EXAMPLES = r"""
- name: Say in the cluster what became of a machine
  kubenode.provision.cluster_event:
    kubeconfig: ~/.kube/config
    events:
      - object: {kind: Node, name: node-1}
        reason: ImageURLCommandSucceeded
        text: the image command succeeded after 42 s
        output: [writing the disk, IMAGE_URL_DONE]
  delegate_to: localhost

- name: What a fleet did, on one ConfigMap, one Event for each machine
  kubenode.provision.cluster_event:
    kubeconfig: ~/.kube/config
    events:
      - object: {kind: ConfigMap, name: fleet, namespace: provisioning}
        subject: node-7
        reason: ProvisioningFailed
        type: Warning
        text: 'node-7: its rescue did not answer'
  delegate_to: localhost
"""

RETURN = r"""
events:
  description: One result for each Event, in the order of O(events).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the Event. Empty when its object was not found.
      type: str
      sample: node-1.7f2c1d9a40e35b68
    namespace:
      description: Namespace of the Event.
      type: str
      sample: default
    reason:
      description: Its reason.
      type: str
      sample: ImageURLCommandSucceeded
    message:
      description: Its message, as it was sent.
      type: str
      sample: 'the image command succeeded after 42 s: writing the disk | IMAGE_URL_DONE'
    count:
      description: How often it was posted.
      type: int
      sample: 1
    failed:
      description: Whether it could not be posted.
      type: bool
    msg:
      description: Why it could not be posted.
      type: str
      sample: ''
"""

import socket
import time
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import to_whole_seconds
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster


def argument_spec() -> dict[str, Any]:
    about = {
        "kind": {"type": "str", "choices": ["Node", "ConfigMap", "Machine"], "required": True},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "api_version": {"type": "str"},
    }
    event = {
        "object": {"type": "dict", "required": True, "options": about},
        "reason": {"type": "str", "required": True},
        "type": {"type": "str", "choices": ["Normal", "Warning"], "default": "Normal"},
        "text": {"type": "str", "required": True},
        "output": {"type": "list", "elements": "str", "default": []},
        "subject": {"type": "str", "default": ""},
    }
    return dict(
        cluster.options(),
        events={"type": "list", "elements": "dict", "required": True, "options": event},
        on_error={"type": "str", "choices": ["fail", "report"], "default": "fail"},
    )


class _CannotReach(Exception):
    """The client of the cluster could not be made."""


class _Raising:
    """The module as `Cluster` takes it, which fails by an exception."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module, self.params, self.no_log_values = module, module.params, module.no_log_values

    def fail_json(self, msg: str, **_more: Any) -> NoReturn:
        """The end of the cluster, not of the module."""
        raise _CannotReach(msg)


def post_all(module: AnsibleModule) -> list[dict[str, Any]]:
    """The result of each Event; after the first request without an answer no other is made."""
    now = to_whole_seconds(time.time())
    lost, poster, results = "", None, []
    try:
        poster = cluster.Events(cluster.Cluster(_Raising(module)), module.check_mode)
    except _CannotReach as error:
        lost = str(error)
    for given in module.params["events"]:
        result = {"name": "", "namespace": "", "reason": given["reason"], "message": "", "count": 0}
        result.update(failed=False, msg="")
        results.append(result)
        if poster is None or lost:
            result.update(failed=True, msg=lost)
            continue
        try:
            event = cluster.build_event(given, poster.about(given["object"]), now, socket.gethostname()[:128])
            result.update(event["metadata"], message=event["message"])
            result["count"] = poster.post(event)
        except (cluster.Impossible, cluster.Refused) as error:
            result.update(failed=True, msg=str(error))
        except cluster.NoAnswer as error:
            lost = f"the cluster of the kubeconfig does not answer: {error}"
            result.update(failed=True, msg=lost)
    return results


def diff(results: list[dict[str, Any]], given: list[dict[str, Any]]) -> dict[str, Any]:
    """What was posted, or would be."""
    before, after = {}, {}
    for result, one in zip(results, given):
        if not result["failed"]:
            key = f"{result['namespace']}/{result['name']}"
            about = f"{one['object']['kind']} {one['object']['name']}"
            before[key] = {"count": result["count"] - 1} if result["count"] > 1 else None
            after[key] = {"object": about, "count": result["count"], "reason": one["reason"]}
            after[key]["message"] = result["message"]
    return {"before": {key: value for key, value in before.items() if value}, "after": after}


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    results = post_all(module) if module.params["events"] else []
    failed = [result for result in results if result["failed"]]
    outcome: dict[str, Any] = {"events": results, "changed": len(failed) < len(results)}
    outcome["diff"] = diff(results, module.params["events"])
    if failed:
        reasons = list(dict.fromkeys(result["msg"] for result in failed))
        more = f" and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
        text = f"{len(failed)} of {len(results)} Events could not be posted: {'; '.join(reasons[:3])}{more}"
        if module.params["on_error"] == "fail":
            module.fail_json(msg=text, **outcome)
        module.warn(text)
    module.exit_json(**outcome)


if __name__ == "__main__":
    main()
