# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: machine_specs
short_description: Turns host variables into the lists of machines that the fleet modules take
version_added: 1.0.0
positional: purpose
description:
  - Reads the C(kubenode_*) variables of each host and returns one dictionary for each host, with C(name) and
    whatever the host sets. A C(kubenode_*) variable that does not belong to this collection causes a warning.
  - Variables that a host does not set are left out, so that the module's own default applies.
  - An installed system listens on C(kubenode_os_port), else on C(ansible_port); its rescue always on port 22.
  - For hosts from the C(hetzner.hcloud.hcloud) inventory, server type and location fall back to what that inventory
    knows; for hosts from the C(community.hrobot.robot) inventory, so does the server number.
options:
  _input:
    description:
      - The variables of the hosts, usually C(groups['machines'] | map('extract', hostvars)).
    type: list
    elements: dictionary
    required: true
  purpose:
    description:
      - Which module the list is for.
    type: string
    choices:
      access: For the option C(access) of M(kubenode.provision.hcloud_rescue) and M(kubenode.provision.robot_rescue).
      image_url_check: For M(kubenode.provision.image_url_check).
      hcloud_machine: For M(kubenode.provision.hcloud_machine).
      installimage_check: For M(kubenode.provision.installimage_check).
      robot_rescue: For M(kubenode.provision.robot_rescue).
      robot_server: For M(kubenode.provision.robot_server).
      wanted: For the option C(wanted) of M(kubenode.provision.hcloud_rescue) and M(kubenode.provision.robot_rescue).
    required: true
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: What hcloud_machine is to create for the group
  ansible.builtin.debug:
    msg: "{{ groups['machines'] | map('extract', hostvars) | kubenode.provision.machine_specs('hcloud_machine') }}"
"""

RETURN = r"""
_value:
  description: One dictionary for each host, in the order of the input.
  type: list
  elements: dictionary
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any


def machine_specs(hosts: Iterable[Mapping[str, Any]], purpose: str) -> list[dict[str, Any]]:
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import machine_specs as specs

    return specs.machine_specs(hosts, purpose)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"machine_specs": machine_specs}
