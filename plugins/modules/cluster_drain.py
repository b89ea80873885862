#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_drain
short_description: Cordons, drains and uncordons the Node of a machine
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Cordons a Node and evicts its pods by the eviction API, so that PodDisruptionBudgets are respected. Pods of
    DaemonSets and mirror pods are left. The module waits until the others are gone.
  - Pods that no controller would make again, and pods with C(emptyDir) volumes, are refused before anything is changed,
    as C(kubectl drain) does. See O(force) and O(delete_emptydir_data).
  - A Node that is not the machine's own is left alone.
  - Runs where a kubeconfig of the cluster is, usually on the controller. Its user needs C(get) and C(patch) on Nodes,
    C(list) on pods and C(create) on C(pods/eviction).
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.kubernetes.kubeconfig
  - kubenode.provision.kubernetes.own_node
  - kubenode.provision.attributes.own_run
attributes:
  check_mode:
    support: full
    details: RV(evicted) names the pods that would be evicted. Nothing is waited for.
  diff_mode:
    support: full
    details: Whether the Node is unschedulable. Pods are in RV(evicted).
  idempotent:
    support: full
options:
  name:
    description: The name of the Node.
    type: str
    required: true
  state:
    description:
      - V(drain) cordons the Node and evicts its pods.
      - V(cordon) only keeps new pods away.
      - V(uncordon) lets new pods in again.
    type: str
    choices: [cordon, drain, uncordon]
    default: drain
  timeout:
    description:
      - Seconds for the pods to go, and with O(ready) for the Node to be Ready.
      - When they are over, the module fails and names what is left and why. The Node stays cordoned, so that another
        call goes on where this one ended.
    type: int
    default: 300
  force:
    description: Whether pods without a controller are evicted, too. Nothing makes them again.
    type: bool
    default: false
  delete_emptydir_data:
    description: Whether pods with C(emptyDir) volumes are evicted, too. What these hold is lost.
    type: bool
    default: false
  field_manager:
    description:
      - Name under which is noted who cordoned the Node, in the annotation C(kubenode.provision/cordoned-by) and by the
        API server itself (C(managedFields)).
    type: str
    default: kubenode.provision
  own_cordon:
    description:
      - With O(state=uncordon), whether a Node that something else than O(field_manager) has cordoned stays cordoned.
    type: bool
    default: false
  ready:
    description: With O(state=uncordon), whether to wait until the Node is Ready before it is uncordoned.
    type: bool
    default: false
  boot_id:
    description:
      - With O(ready), the boot id of the machine. What the Node's status says of an earlier boot does not count.
    type: str
    default: ''
  kubelet_version:
    description:
      - With O(ready), the version of the kubelet, such as V(1.37.1). What the Node's status says of another one does
        not count.
    type: str
    default: ''
seealso:
  - module: kubenode.provision.cluster_node
  - module: kubenode.provision.node_join_wait
"""

EXAMPLES = r"""
- name: Move the pods elsewhere
  kubenode.provision.cluster_drain:
    kubeconfig: ~/.kube/config
    name: node-1
    timeout: 600
    delete_emptydir_data: true
  delegate_to: localhost

- name: Take pods again once the Node is Ready, unless a person had cordoned it
  kubenode.provision.cluster_drain:
    kubeconfig: ~/.kube/config
    name: node-1
    state: uncordon
    own_cordon: true
    ready: true
  delegate_to: localhost
"""

RETURN = r"""
name:
  description: The name of the Node that was looked for, or found.
  returned: always
  type: str
  sample: node-1
existed:
  description: Whether there is a Node of that name.
  returned: always
  type: bool
own:
  description: Whether that Node is the machine's own.
  returned: always
  type: bool
unschedulable:
  description: Whether the Node is cordoned now.
  returned: always
  type: bool
own_cordon:
  description: Whether O(field_manager) is the one who has cordoned it, now or in an earlier call.
  returned: always
  type: bool
cordoned_by:
  description: The O(field_manager) that has cordoned it, as its annotation says; empty when it was something else.
  returned: always
  type: str
  sample: kubenode.provision/node_reboot
evicted:
  description: The pods that were evicted, or would be, as C(namespace/name).
  returned: when O(state=drain)
  type: list
  elements: str
  sample: [default/web-0]
stayed:
  description: The pods that were left, each with C(pod) and C(why).
  returned: when O(state=drain)
  type: list
  elements: dict
  sample:
    - pod: kube-system/proxy-x7k2f
      why: of a DaemonSet, which would make it again
waiting:
  description: The pods that could not be evicted, each with C(pod) and C(why).
  returned: on failure, when there are some
  type: list
  elements: dict
failure:
  description: Why it failed, with RV(ignore:failure.code) V(not_drained), V(not_ready), V(pods_refused) or
    V(api_unreachable).
  returned: on failure
  type: dict
"""

import time
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.own_run import run_options
from ansible_collections.kubenode.provision.plugins.module_utils._node import api_server
from ansible_collections.kubenode.provision.plugins.module_utils._node.join import cluster, drain


def argument_spec() -> dict[str, Any]:
    return dict(
        cluster.options(),
        **cluster.owner_options(),
        **run_options(),
        name={"type": "str", "required": True},
        state={"type": "str", "choices": ["cordon", "drain", "uncordon"], "default": "drain"},
        timeout={"type": "int", "default": 300},
        force={"type": "bool", "default": False},
        delete_emptydir_data={"type": "bool", "default": False},
        field_manager={"type": "str", "default": "kubenode.provision"},
        own_cordon={"type": "bool", "default": False},
        ready={"type": "bool", "default": False},
        boot_id={"type": "str", "default": ""},
        kubelet_version={"type": "str", "default": ""},
    )


class Node:
    """The Node of one machine, and what became of it."""

    def __init__(self, module: AnsibleModule, reached: cluster.Cluster) -> None:
        self._module, self._cluster = module, reached
        params = module.params
        found, self._mine = cluster.find_own(reached, params)
        self._node: dict[str, Any] = found or {}
        about = {"name": params["name"], "existed": found is not None, "own": self._mine}
        self.result: dict[str, Any] = {"changed": False, **about}
        self._note()

    def bring_about(self) -> None:
        """Reach the state that was asked for; fails the module when that cannot be."""
        params = self._module.params
        if not self._mine:
            if self._node:
                self._module.warn(f"the Node {params['name']} was not registered by this machine and is left alone")
            if params["state"] == "drain":
                self.result.update(evicted=[], stayed=[])
        elif params["state"] == "uncordon":
            self._uncordon()
        elif params["state"] == "cordon":
            self._cordon()
        else:
            self._drain()

    def _drain(self) -> None:
        params = self._module.params
        rules = params["force"], params["delete_emptydir_data"]
        try:
            plan = drain.judge(self._cluster.pods_on(params["name"]), *rules)
        except (cluster.Refused, cluster.NoAnswer) as error:
            self._fail("api_unreachable", f"the pods of the Node {params['name']} cannot be listed: {error}")
        self.result.update(evicted=[drain.name_of(pod) for pod in plan.evict], stayed=plan.stay)
        if plan.refused:
            self.result.update(evicted=[])
            pods = drain.in_words(plan.refused)
            text = f"nothing was changed, since there are pods on the Node {params['name']} that would be lost: {pods}"
            self._fail("pods_refused", text, waiting=plan.refused)
        self._cordon()
        if plan.evict:
            self.result["changed"] = True
        if self._module.check_mode or not plan.evict:
            return
        silent = drain.is_silent(self._node)
        try:
            evicting = drain.Drain(self._cluster, params["name"], params["timeout"], silent)
            self.result["evicted"] = evicting.run(plan.evict, *rules)
        except drain.NotDrained as error:
            self.result["evicted"] = error.evicted
            text = f"{error}. It stays cordoned: run again to go on, or uncordon it (kubectl uncordon {params['name']})"
            self._fail("not_drained", text, waiting=error.waiting)

    def _cordon(self) -> None:
        if not self._node["spec"].get("unschedulable"):
            self._set(True)

    def _uncordon(self) -> None:
        params = self._module.params
        if params["ready"] and not self._module.check_mode:
            self._wait_until_ready()
        if self._node["spec"].get("unschedulable") and (not params["own_cordon"] or self.result["own_cordon"]):
            self._set(False)

    def _wait_until_ready(self) -> None:
        params = self._module.params
        until = time.monotonic() + params["timeout"]
        while True:
            try:
                self._node = self._cluster.node_now(params["name"])
                ready, why = drain.is_ready(self._node, params["boot_id"], params["kubelet_version"])
            except (cluster.Refused, cluster.NoAnswer) as error:
                ready, why = False, str(error)
            if ready:
                break
            if time.monotonic() >= until:
                text = f"the Node {params['name']} was not Ready within {params['timeout']} s: {why}"
                self._fail("not_ready", text)
            time.sleep(1)
        self._note()

    def _set(self, unschedulable: bool) -> None:
        before = {"unschedulable": not unschedulable}
        self.result.update(changed=True, diff={"before": before, "after": {"unschedulable": unschedulable}})
        if self._module.check_mode:
            manager = self._module.params["field_manager"] if unschedulable else ""
            self.result.update(unschedulable=unschedulable, own_cordon=unschedulable, cordoned_by=manager)
            return
        self._node = self._cluster.cordon(self._node, unschedulable, self._module.params["field_manager"])
        self._note()

    def _note(self) -> None:
        spec = self._node.get("spec") or {}
        manager = api_server.cordoned_by(self._node) if self._mine else ""
        self.result["unschedulable"] = bool(self._mine and spec.get("unschedulable"))
        self.result["cordoned_by"] = manager
        self.result["own_cordon"] = manager != "" and manager == self._module.params["field_manager"]

    def _fail(self, code: str, text: str, **more: Any) -> NoReturn:
        self._module.fail_json(msg=text, failure={"code": code, "detail": text}, **dict(self.result, **more))
        raise AssertionError("fail_json ends the process")


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    if module.params["timeout"] < 1:
        module.fail_json(msg=f"timeout: {module.params['timeout']} is no time; give at least 1 second")
    node = Node(module, cluster.Cluster(module))
    node.bring_about()
    module.exit_json(**node.result)


if __name__ == "__main__":
    main()
