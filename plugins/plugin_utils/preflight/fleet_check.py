# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a whole fleet's inputs before anything happens: one message with every finding of every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._common import access
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._common.wording import in_variables

from ..rescue_run import install_plan, machine_install
from ..rescue_run.flow import Host
from ..ssh.private_key import KeyNotUsable, check_private_key
from . import known_variables

#: Takes a machine, and the variables of its host when it is made of these; returns what to report of it, and everything
#: that is wrong with it.
Examine = Callable[[Mapping[str, Any], Mapping[str, Any] | None], tuple[dict[str, Any], list[str]]]


def variables_of(name: str, given: Mapping[str, Any], task_vars: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The variables of a machine's host, None for options that a user has written into a play."""
    if not given["variables"]:
        return None
    return (task_vars or {}).get("hostvars", {}).get(name) or {}


def fleet_check(
    action: ActionBase, given: Mapping[str, Any], examine: Examine, task_vars: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The task result for the fleet; ``given``: the options of the task."""
    machines, private_key = given["machines"], given["ssh_private_key"]
    names = [machine["name"] for machine in machines]
    addresses = Counter(machine["address"] for machine in machines if machine["address"])
    steps = {machine["name"]: machine for machine in given["steps"]}
    variables = install_plan.variables()
    results, everything = [], [] if names else ["machines is empty; name at least one"]
    for machine in machines:
        own = variables_of(machine["name"], given, task_vars)
        about, findings = examine(machine, own)
        findings = [*findings, *access.findings(machine)]
        host = Host(machine["name"], action, None, own)
        if addresses[machine["address"]] > 1:
            findings.append(
                f"address {one_line(machine['address'], 60)!r}: another machine has it, too; give each "
                "machine the address of its own server"
            )
        if machine["drift"] not in (None, "report", "fail"):
            findings.append(f"drift {one_line(str(machine['drift']), 60)!r}: use one of report, fail")
        if names.count(machine["name"]) > 1:
            findings.append("name: it stands in the list more than once")
        findings = [in_variables(finding, given["variables"]) for finding in findings]
        if own is not None:
            wrong = known_variables.mistyped(own, *install_plan.PLAYBOOKS)
            findings = [one for one in findings if not one.startswith(tuple(wrong))] if wrong else findings
            findings += [*wrong.values(), *known_variables.ways(own)]
        findings += machine_install.findings(host, steps.get(machine["name"], {}), variables, findings)
        everything += [f"{machine['name']}: {finding}" for finding in findings]
        result = {"name": machine["name"], "changed": False, "failed": bool(findings), "msg": "; ".join(findings)}
        results.append({**result, **about} if not findings else result)
    if private_key:
        try:
            check_private_key(private_key)
        except KeyNotUsable as exc:
            everything.append(in_variables(f"ssh_private_key {private_key!r}: {exc}", given["variables"]))
    answer: dict[str, Any] = {"changed": False, "failed": bool(everything), "machines": results, "api_calls": 0}
    if everything:
        count = f"{len(everything)} finding{'s' if len(everything) > 1 else ''}, nothing was created or changed"
        answer["msg"] = f"{count}:\n" + "\n".join(f"- {finding}" for finding in everything)
    return answer
