# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examines what a user says about the images of a whole fleet, before anything is created."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options
from ansible_collections.kubenode.provision.plugins.plugin_utils import _inputs
from ansible_collections.kubenode.provision.plugins.plugin_utils._private_key import KeyNotUsable, check_private_key


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the task for all machines."""
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=options.image_url_check_spec())[1]
        machines, findings = self._machines(given)
        if given["ssh_private_key"]:
            try:
                check_private_key(given["ssh_private_key"])
            except KeyNotUsable as exc:
                findings.append(f"ssh_private_key {given['ssh_private_key']!r}: {exc}")
        result = {"changed": False, "failed": bool(findings), "machines": machines, "api_calls": 0}
        if findings:
            count = f"{len(findings)} finding{'s' if len(findings) > 1 else ''}, nothing was created or changed"
            result["msg"] = f"{count}:\n" + "\n".join(f"- {finding}" for finding in findings)
        return result

    def _machines(self, given: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
        read_file, names = _inputs.file_reader(self), [machine["name"] for machine in given["machines"]]
        results, everything = [], []
        if not names:
            everything.append("machines is empty; name at least one")
        for machine in given["machines"]:
            inputs, findings = _inputs.examine(machine, given["command_dir"], read_file)
            if names.count(machine["name"]) > 1:
                findings = [*findings, "name: it stands in the list more than once"]
            everything += [f"{machine['name']}: {finding}" for finding in findings]
            result = {"name": machine["name"], "changed": False, "failed": bool(findings), "msg": "; ".join(findings)}
            if inputs:
                result.update(
                    image_url=image_url.redact(inputs.image_url),
                    command_path=inputs.command.path,
                    command_sha256=inputs.command.sha256,
                    command_shipped=inputs.command.shipped,
                )
            results.append(result)
        return results, everything
