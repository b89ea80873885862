# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps machines with a permanent error out of later runs until a person says that they are repaired."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._common import consent, times
from ansible_collections.kubenode.provision.plugins.module_utils._common.text import one_line
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.records.quarantine import (
    Entry,
    Quarantine,
    QuarantineError,
)


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task for all machines."""
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=options.machine_quarantine_spec())[1]
        machines = given["machines"]
        names = [machine.get("name") for machine in machines]
        if None in names or len(set(names)) < len(names):
            raise AnsibleActionFail("machines: every machine needs a name, and each name may be given once")
        unknown = sorted(set(given["clear"]) - set(names))
        if unknown:
            raise AnsibleActionFail(f"clear: {', '.join(unknown)} not in machines; name machines of this call only")
        quarantine = Quarantine(given["quarantine_dir"])
        step = self._add if given["state"] == "set" else self._check
        try:
            results = [step(quarantine, machine, given["clear"]) for machine in machines]
        except QuarantineError as exc:
            raise AnsibleActionFail(f"quarantine_dir: {exc}") from exc
        closed = [f"{result['name']}: {result['msg']}" for result in results if result["failed"]]
        answer = {
            "changed": any(result["changed"] for result in results),
            "failed": bool(closed) and given["on_error"] == "fail" and given["state"] == "checked",
            "machines": results,
        }
        if closed and given["state"] == "checked":
            answer["msg"] = "\n".join(closed)
        return answer

    def _check(self, quarantine: Quarantine, machine: dict[str, Any], clear: list[str]) -> dict[str, Any]:
        name = machine["name"]
        entry = quarantine.entry(name)
        if entry is None:
            return {**machine, "failed": False, "changed": False, "quarantined": False, "msg": ""}
        if name in clear:
            if not self._task.check_mode:
                quarantine.clear(name)
            return {**machine, "failed": False, "changed": True, "quarantined": False, "msg": "out of quarantine"}
        msg = f"in quarantine since {entry.since}: {entry.reason}. Mend it, then let it out: " + consent.extra_var(
            "clear_quarantine", [name]
        )
        return {**machine, "failed": True, "changed": False, "quarantined": True, "msg": msg}

    def _add(self, quarantine: Quarantine, machine: dict[str, Any], _clear: list[str]) -> dict[str, Any]:
        name, changed = machine["name"], False
        wanted = bool(machine.get("failed")) and bool(machine.get("permanent"))
        if wanted and self._task.check_mode:
            changed = quarantine.entry(name) is None
        elif wanted:
            reason = one_line(str(machine.get("msg") or "no reason given"), 1000).removeprefix(f"{name}: ")
            changed = quarantine.add(Entry(name, reason, times.to_rfc3339(time.time())))
        return {**machine, "failed": bool(machine.get("failed")), "changed": changed, "quarantined": wanted}
