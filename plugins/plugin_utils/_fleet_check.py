# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a whole fleet's inputs before anything happens: one message with every finding of every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common import access
from ansible_collections.kubenode.provision.plugins.plugin_utils._private_key import KeyNotUsable, check_private_key

#: Takes a machine; returns what to tell of it, and everything that is wrong with it.
Examine = Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[str]]]


def fleet_check(machines: Sequence[Mapping[str, Any]], private_key: str | None, examine: Examine) -> dict[str, Any]:
    """The task result for the fleet."""
    names = [machine["name"] for machine in machines]
    results, everything = [], [] if names else ["machines is empty; name at least one"]
    for machine in machines:
        about, findings = examine(machine)
        findings = [*findings, *access.findings(machine)]
        if names.count(machine["name"]) > 1:
            findings = [*findings, "name: it stands in the list more than once"]
        everything += [f"{machine['name']}: {finding}" for finding in findings]
        result = {"name": machine["name"], "changed": False, "failed": bool(findings), "msg": "; ".join(findings)}
        results.append({**result, **about} if not findings else result)
    if private_key:
        try:
            check_private_key(private_key)
        except KeyNotUsable as exc:
            everything.append(f"ssh_private_key {private_key!r}: {exc}")
    answer: dict[str, Any] = {"changed": False, "failed": bool(everything), "machines": results, "api_calls": 0}
    if everything:
        count = f"{len(everything)} finding{'s' if len(everything) > 1 else ''}, nothing was created or changed"
        answer["msg"] = f"{count}:\n" + "\n".join(f"- {finding}" for finding in everything)
    return answer
