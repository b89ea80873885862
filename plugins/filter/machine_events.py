# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: machine_events
short_description: Turns results of machine_install into Kubernetes Events
version_added: 0.1.0
positional: hostvars, last_try
description:
  - Returns the option C(events) of M(kubenode.provision.cluster_event).
  - The reasons are C(ImageURLCommandSucceeded) and C(ImageURLCommandFailed), C(InstallImageSucceeded) and
    C(InstallImageFailed), and C(ProvisioningSucceeded) and C(ProvisioningFailed) for what happened without or after the
    command.
  - Each Event has the last lines that the command printed.
  - The object is what the variable C(kubenode_event_object) of the host says (C(kind), C(name), C(namespace),
    C(api_version)), else the Node of the machine.
options:
  _input:
    description:
      - The C(machines) that M(kubenode.provision.machine_install) returned.
    type: list
    elements: dictionary
    required: true
  hostvars:
    description:
      - The variables of all hosts.
    type: dictionary
    required: true
  last_try:
    description:
      - Whether a machine that did not reach its rescue has failed. Otherwise nothing is said of it, since another try
        follows.
    type: boolean
    default: false
seealso:
  - module: kubenode.provision.cluster_event
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Post what became of the machines
  kubenode.provision.cluster_event:
    kubeconfig: ~/.kube/config
    events: "{{ installed.machines | kubenode.provision.machine_events(hostvars) }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
_value:
  description: One or two Events for each machine to which something happened.
  type: list
  elements: dictionary
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def machine_events(
    machines: Iterable[Mapping[str, Any]], hostvars: Mapping[str, Mapping[str, Any]], last_try: bool = False
) -> list[dict[str, Any]]:
    """See DOCUMENTATION."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _events

    try:
        return _events.events(machines, hostvars, last_try)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"machine_events": machine_events}
