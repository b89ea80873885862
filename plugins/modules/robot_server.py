#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: robot_server
short_description: Look up the dedicated servers of a whole fleet in Robot, and name them
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Returns number, addresses, product and status of every server, for one request.
  - Gives a server another name in Robot where the wanted name differs. Nothing else of a server is changed.
extends_documentation_fragment:
  - kubenode.provision.hetzner.robot
  - kubenode.provision.attributes.own_run
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  machines:
    description:
      - The machines of the fleet. Each one needs C(name), the name of the machine.
      - C(server_number) or C(server_ip) says which server it is. Without both, it is the server whose name in Robot is
        C(name).
      - C(rename) is the name that the server is to have in Robot. Without it the name is left as it is.
      - Results of M(kubenode.provision.robot_rescue) are accepted.
    type: list
    elements: dict
    required: true
  timeout:
    description: Seconds for each step at the webservice, including repeated requests.
    type: int
    default: 360
seealso:
  - module: kubenode.provision.robot_rescue
  - module: community.hrobot.server
"""

EXAMPLES = r"""
- name: Look up servers
  kubenode.provision.robot_server:
    machines:
      - name: node-1
        server_number: 321
      - name: node-2
        server_ip: 192.0.2.20
  delegate_to: localhost
  run_once: true
  register: servers

- name: Give the servers the names of their machines
  kubenode.provision.robot_server:
    machines:
      - name: node-1
        server_number: 321
        rename: node-1
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
machines:
  description: One result for each machine, in the order of the option O(machines).
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the machine.
      type: str
      sample: node-1
    server_number:
      description: Number of the server, V(null) if there is none.
      type: int
      sample: 321
    server_name:
      description: Name of the server in Robot, after the change.
      type: str
      sample: node-1
    ipv4:
      description: Main IPv4 address, V(null) if there is none.
      type: str
      sample: 192.0.2.10
    ipv6:
      description: IPv6 network, V(null) if there is none.
      type: str
      sample: 2001:db8:0:1::/64
    ipv6_address:
      description: Address of the server in that network.
      type: str
      sample: 2001:db8:0:1::2
    product:
      description: Product of the server.
      type: str
      sample: AX41-NVMe
    status:
      description: Status of the server, V(ready) or V(in process).
      type: str
      sample: ready
    cancelled:
      description: Whether the server is cancelled.
      type: bool
    boot_state:
      description: Boot state of the machine as it was given, empty if it is not known.
      type: str
      sample: OperatingSystemRunning
    boot_state_since:
      description: When the boot state began.
      type: str
      sample: '2026-11-21T00:00:00.000Z'
    transitions:
      description: Changes of the boot state during this call; a name changes none.
      type: list
      elements: dict
      sample: []
    api_calls:
      description: Requests that were made for this machine alone.
      type: int
      sample: 1
    changed:
      description: Whether the server got another name, or may have got it by a request that got no answer.
      type: bool
    failed:
      description: Whether this machine failed.
      type: bool
    msg:
      description: What was done, or why it failed.
      type: str
      sample: renamed from 'server-321' to 'node-1'
api_calls:
  description: Requests that were made for the whole fleet, shared ones included.
  returned: always
  type: int
  sample: 3
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import VARIABLES
from ansible_collections.kubenode.provision.plugins.module_utils._common.own_run import run_options
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import run_fleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_client import (
    Robot,
    open_robot,
    robot_options,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_servers import RobotServerFleet


def argument_spec() -> dict[str, Any]:
    return dict(
        robot_options(),
        **run_options(),
        machines={"type": "list", "elements": "dict", "required": True},
        timeout={"type": "int", "default": 360},
        variables=dict(VARIABLES),
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params

    def work(api: Robot) -> list[dict[str, Any]]:
        return RobotServerFleet(api, params["machines"], params["timeout"], module.check_mode).run()

    run_fleet(module, work, open_robot())


if __name__ == "__main__":
    main()
