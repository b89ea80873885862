# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Examines what a user says about the images of a whole fleet, before anything is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import image_url, options
from ansible_collections.kubenode.provision.plugins.plugin_utils.controller_action import ControllerAction
from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight.fleet_check import fleet_check
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import image_inputs
from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.flow import Host


class ActionModule(ControllerAction):
    """See the documentation of the module of the same name."""

    specification = staticmethod(options.image_url_check_spec)

    def work(self, given: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        def examine(machine: Mapping[str, Any], host: Host) -> tuple[dict[str, Any], list[str]]:
            inputs, findings = image_inputs.examine(machine, given["command_dir"], host.read_file)
            hook, more = image_inputs.examine_pre_provision(machine, given["command_dir"], host.find_file)
            findings = findings + image_inputs.check_token(machine.get("oci_registry_auth_token")) + more
            if not inputs or findings:
                return {}, findings
            about = {
                "image_url": image_url.redact(inputs.image_url),
                "command_path": inputs.command.path,
                "command_sha256": inputs.command.sha256,
                "command_shipped": inputs.command.shipped,
            }
            if hook:
                about["pre_provision_path"] = hook.path
            return about, findings

        return fleet_check(self, given, examine, task_vars)
