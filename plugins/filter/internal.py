# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: internal
short_description: What the playbooks and roles of this collection compute
version_added: 1.0.0
positional: function
description:
  - The playbooks and roles of this collection use it. It may change in every release; do not use it in a playbook of
    your own.
options:
  _input:
    description:
      - What the function works on.
    type: raw
    required: true
  function:
    description:
      - The name of a function of this collection. Other arguments are those of the function.
    type: string
    required: true
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
# As this collection's tasks/check_variables.yml does:
- name: Fail when variables contradict each other
  ansible.builtin.assert:
    that: found | length == 0
    fail_msg: "{{ found | join('; ') }}"
  vars:
    found: >-
      {{ ansible_play_hosts | map('extract', hostvars)
         | kubenode.provision.internal('variable_findings', 'hcloud_image_url') }}
  run_once: true
"""

RETURN = r"""
_value:
  description: What the function returns.
  type: raw
"""

import importlib
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

_UTILS = "ansible_collections.kubenode.provision.plugins.plugin_utils."
#: The name that a playbook gives → the module and its function. It is imported when it is called, see docs/design.md.
FUNCTIONS: dict[str, tuple[str, str]] = {
    "base_plan": ("node_plan.base_plan", "base_plan"),
    "join_plan": ("node_plan.join_plan", "join_plan"),
    "image_server_plan": ("image_server.role_plan", "image_server_plan"),
    "image_server_findings": ("preflight.conflicts", "image_server_findings"),
    "variable_findings": ("preflight.conflicts", "variable_findings"),
    "role_findings": ("preflight.conflicts", "role_findings"),
    "variable_names": ("preflight.machine_specs", "variable_names"),
    "inventory_folder": ("preflight.controller_paths", "inventory_folder"),
    "path_of_ssh": ("preflight.controller_paths", "of_ssh"),
    "state_folder": ("preflight.controller_paths", "state_folder"),
    "awx_plan": ("preflight.awx", "awx_plan"),
    "awx_lists": ("preflight.awx", "awx_lists"),
    "awx_waiting": ("preflight.awx", "awx_waiting"),
    "awx_settled": ("preflight.awx", "awx_settled"),
    "survey": ("preflight.awx", "survey"),
    "leave_plan": ("preflight.leaving", "leave_plan"),
    "is_releasing": ("preflight.leaving", "is_releasing"),
    "reboot_plan": ("preflight.leaving", "reboot_plan"),
    "batch_plan": ("preflight.site", "batch_plan"),
    "site_plan": ("preflight.site", "site_plan"),
    "machine_names": ("preflight.site", "machine_names"),
    "new_systems": ("preflight.site", "new_systems"),
    "user_data_problems": ("node_plan.user_data", "problems"),
    "user_data_of_hosts": ("preflight.conflicts", "user_data_of_hosts"),
    "upgrade_problems": ("preflight.site", "upgrade_problems"),
    "inventory_hosts": ("records.machine_inventory", "hosts_of"),
    "known_access": ("records.machine_inventory", "access"),
    "another_server": ("records.machine_inventory", "another_server"),
    "ssh_args": ("records.machine_inventory", "ssh_args"),
    "is_pinned": ("records.machine_inventory", "is_pinned"),
    "why_not_reached": ("ssh.remote", "why_not_reached"),
    "is_silent": ("ssh.remote", "is_silent"),
    "machine_events": ("report.run_events", "events"),
    "run_summary": ("report.run_events", "run_summary"),
    "node_image_builds": ("node_image.builds", "builds_here"),
    "node_image_faults": ("node_image.builds", "faults"),
    "node_image_outcomes": ("node_image.builds", "outcomes"),
    "node_image_table": ("node_image.builds", "table"),
    "node_image_tarballs": ("node_image.tarballs", "tarballs"),
    "node_image_tarball_outcomes": ("node_image.tarballs", "outcomes"),
    "node_image_tarball_record": ("node_image.tarballs", "record"),
    "node_image_tarball_table": ("node_image.tarballs", "table"),
}


def internal(value: Any, function: str, *given: Any, **named: Any) -> Any:
    module, name = FUNCTIONS[function]
    try:
        return getattr(importlib.import_module(_UTILS + module), name)(value, *given, **named)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"internal": internal}
