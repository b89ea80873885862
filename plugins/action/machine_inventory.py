# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the inventory of the machines that runs have proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.records import machine_inventory


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.machine_inventory_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        path, hosts = given["path"], given["hosts"]
        result: dict[str, Any] = {"changed": False, "failed": False, "path": path, "msg": "", "warnings": []}
        result["known"] = {}
        check = self._task.check_mode
        try:
            if given["known"]:
                hostvars = task_vars.get("hostvars") or {}
                result["changed"] = machine_inventory.take(path, given["known"], hostvars, check)
        except machine_inventory.InventoryError as error:
            return {**result, "failed": True, "msg": f"{error}. Nothing was changed."}
        if not (hosts or given["gone"]):
            return result
        try:
            result["changed"] |= machine_inventory.change(path, hosts, given["gone"], check)
            if check:
                return result
            result["known"] = machine_inventory.handed_on(path, hosts)
        except machine_inventory.InventoryError as error:
            # the machines are well, and the run has their addresses
            result["warnings"] = [f"the machines of this run are not in the inventory of later ones: {error}"]
            return result
        if hosts:
            sources = task_vars.get("ansible_inventory_sources") or ()
            result["msg"] = (
                f"{path} says how {'it is' if len(hosts) == 1 else f'these {len(hosts)} machines are'} reached. To go "
                f"on: {machine_inventory.command(path, map(str, sources))}"
            )
        return result
