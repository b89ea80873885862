# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: install_plan
short_description: Turns host variables and results of the API phase into the machines of machine_install
version_added: 1.0.0
positional: playbook, phase, directory
description:
  - Reads the C(kubenode_*) variables of each host, and returns the option C(machines) of
    M(kubenode.provision.machine_install) - the steps of each machine, from the program in its rescue to the proof of
    its new system.
  - A variable that a host does not set is left out, so that the step's own default applies.
options:
  _input:
    description:
      - The variables of the hosts, usually C(groups['machines'] | map('extract', hostvars)).
    type: list
    elements: dictionary
    required: true
  playbook:
    description:
      - The playbook whose steps they are.
    type: string
    choices: [hcloud_image_url, robot_image_url, robot_installimage]
    required: true
  phase:
    description:
      - The C(machines) that M(kubenode.provision.hcloud_rescue) or M(kubenode.provision.robot_rescue) returned. Of two
        entries with one name the first one counts. A host without an entry is left out.
      - V(null) before that, when options are to be checked. Then every machine takes all steps.
    type: list
    elements: dictionary
    required: true
  directory:
    description:
      - Where intents, host keys and logs are kept, as C(kubenode_dir).
    type: string
    required: true
  token:
    description:
      - The token for registries, for hosts that set no C(kubenode_registry_token).
    type: string
    default: ''
  stay:
    description:
      - Names of the machines that stay in their rescue when the image is written.
    type: list
    elements: string
    default: []
  last_try:
    description:
      - Whether a machine that does not reach its rescue has failed. Otherwise it is only reported as C(late).
    type: boolean
    default: false
  second_try:
    description:
      - Whether these machines were late before. One that is late again is shown as failed.
    type: boolean
    default: false
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: What the machines of the group are to do
  ansible.builtin.debug:
    msg: >-
      {{ groups['machines'] | map('extract', hostvars)
         | kubenode.provision.install_plan('hcloud_image_url', armed.machines, '/var/lib/kubenode') }}
"""

RETURN = r"""
_value:
  description: One dictionary for each host, in the order of the input.
  type: list
  elements: dictionary
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

if TYPE_CHECKING:
    from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run.install_plan import ApiMachine, Machine


def install_plan(
    hosts: Iterable[Mapping[str, Any]],
    playbook: str,
    phase: Iterable[ApiMachine] | None,
    directory: str,
    token: str = "",
    stay: Iterable[str] = (),
    last_try: bool = False,
    second_try: bool = False,
) -> list[Machine]:
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.rescue_run import install_plan as plans

    try:
        return plans.plan(hosts, playbook, phase, directory, token, stay, last_try, second_try)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"install_plan": install_plan}
