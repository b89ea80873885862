# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: internal
short_description: What the playbooks of this collection compute
version_added: 0.1.0
positional: function
description:
  - The playbooks of this collection use it. It may change in every release; do not use it in a playbook of your own.
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
# This collection's own tasks/check_variables.yml:
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

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.plugin_utils.lazy_import import LazyModule

_conflicts = LazyModule("plugin_utils.preflight.conflicts")
_leaving = LazyModule("plugin_utils.preflight.leaving")
_specs = LazyModule("plugin_utils.preflight.machine_specs")
_events = LazyModule("plugin_utils.report.events")
_builds = LazyModule("plugin_utils.node_image.builds")
_tarballs = LazyModule("plugin_utils.node_image.tarballs")

#: The name that a playbook gives → the function.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "variable_findings": _conflicts.function("variable_findings"),
    "variable_names": _specs.function("variable_names"),
    "leave_plan": _leaving.function("leave_plan"),
    "machine_events": _events.function("events"),
    "run_summary": _events.function("run_summary"),
    "node_image_builds": _builds.function("builds_here"),
    "node_image_faults": _builds.function("faults"),
    "node_image_outcomes": _builds.function("outcomes"),
    "node_image_table": _builds.function("table"),
    "node_image_tarballs": _tarballs.function("tarballs"),
    "node_image_tarball_outcomes": _tarballs.function("outcomes"),
    "node_image_tarball_record": _tarballs.function("record"),
    "node_image_tarball_table": _tarballs.function("table"),
}


def internal(value: Any, function: str, *given: Any, **named: Any) -> Any:
    """See DOCUMENTATION."""
    try:
        return FUNCTIONS[function](value, *given, **named)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"internal": internal}
