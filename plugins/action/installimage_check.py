# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examines what a user says about the installations of a whole fleet, before a server is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import in_variables
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import layout as layouts
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.installimage import spec as specs
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight.fleet_check import fleet_check
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import image_inputs, robot_installimage
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Host


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.installimage_check_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        def examine(machine: Mapping[str, Any], host: Host) -> tuple[dict[str, Any], list[str]]:
            inputs, findings = robot_installimage.examine(
                machine, host.name, host.read_file, host.find_file, with_disks=False
            )
            hook, more = image_inputs.examine_pre_provision(machine, given["command_dir"], host.find_file)
            count = _disks(machine["root_device_hints"])
            if count and inputs:
                layout = specs.layout_of(inputs.spec, inputs.spec["uefi"] == specs.YES)
                findings = layouts.check_disks(count, layout)
            about = {"image": inputs.spec["image"]["shown"]} if inputs else {}
            if hook:
                about["pre_provision_path"] = hook.path
            # Which disks these are, only the machine knows; here they are named by hints.
            return about, [in_variables(text, {"root_devices": "root_device_hints"}) for text in findings] + more

        return fleet_check(self, given, examine, task_vars)


def _disks(hints: Mapping[str, Any] | None) -> int:
    """How many disks the hints will choose; 0 when only the machine knows it."""
    if not hints or "query" in hints:
        return 0
    raid = hints.get("raid")
    wwns = raid.get("wwn") if isinstance(raid, Mapping) else None
    return len(wwns) if isinstance(wwns, list) else 1
