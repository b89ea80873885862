#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hcloud_rescue
short_description: Boot the Hetzner Cloud servers of a whole fleet into their rescue system, and prove it
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Arms the rescue system and boots the machine into it. The API can only say that the rescue is armed for the next
    boot, so the module proves by SSH that the rescue is what came up (see O(prove)).
  - What is done depends on what is found. A server that is off and never started (its action history says so) is
    armed and powered on. A server that is in its rescue already is left there. A server with another running system
    is left alone. A server that is off but was started before, or that runs without answering, is refused.
    O(reinstall) is the consent to boot such a server into the rescue nevertheless.
  - The host key of the rescue is not known in advance. It is accepted on first contact and kept in O(known_hosts_dir)
    for the rest of the run; the known_hosts files of the user are neither read nor written.
extends_documentation_fragment:
  - kubenode.provision.hetzner.hcloud
  - kubenode.provision.hetzner.boot_rescue
  - kubenode.provision.attributes
  - kubenode.provision.hetzner.progress
  - kubenode.provision.attributes.own_run
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
    details: Servers are read and running ones are asked by SSH which system they run; nothing is changed.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  machines:
    description:
      - The machines of the fleet. Each one needs at least C(name).
      - Pass the results of M(kubenode.provision.hcloud_machine) on; then C(create_action) is waited for, and C(fresh)
        saves the look into the action history of servers that were just created.
      - A machine that already C(failed) is handed on as it is.
      - C(adopt=true) for a machine permits to handle a server that was not made by this collection.
    type: list
    elements: dict
    required: true
  ssh_keys:
    description:
      - Names or IDs of registered SSH keys that may log in to the rescue. Only these can. A dictionary
        with the key C(label_selector) stands for all keys with these labels.
      - Required for O(state=rescue).
    type: list
    elements: raw
    default: []
  prove:
    description:
      - Whether to wait until a system with a new boot ID answers by SSH as root that runs from memory and has the marks
        of Hetzner's rescue.
      - With V(false) the module ends when the boot of every machine was requested.
    type: bool
    default: true
  reinstall:
    description:
      - Names of machines whose present system may be given up, or a dictionary of names and the installations (at
        least the first eight digits of their ids) that may. The module itself overwrites nothing.
      - A bare name counts once. It does nothing for a system whose record says that it was installed by such a word.
      - Names of other machines do nothing.
    type: raw
    default: []
  rearm:
    description:
      - Whether to try again with machines that an earlier call armed and that did not arrive in their rescue. They
        are recognised by C(boot_state=BootingToRescue) in O(machines).
      - They are armed again if the rescue is not armed any more, and reset.
    type: bool
    default: false
  ssh_private_key:
    description:
      - File of the SSH private key on the controller.
      - If it is given, its public half must be one of O(ssh_keys).
      - Without it the SSH client uses the agent or the keys it finds by itself.
    type: path
  ssh_user:
    description: User to log in as. The rescue only counts as proved for C(root).
    type: str
    default: root
  ssh_port:
    description: Port of the SSH server.
    type: int
    default: 22
  timeout:
    description: Seconds each machine has for each step at the API, including repeated requests.
    type: int
    default: 360
  rescue_timeout:
    description:
      - Seconds each machine has from being started until its rescue answers, and each running machine for answering
        at all.
    type: int
    default: 360
seealso:
  - module: kubenode.provision.hcloud_machine
"""

EXAMPLES = r"""
- name: Boot new machines into their rescue
  kubenode.provision.hcloud_rescue:
    machines: "{{ fleet.machines }}"
    ssh_keys: [deploy]
    ssh_private_key: ~/.ssh/deploy
  delegate_to: localhost
  run_once: true
  register: rescued

- name: Only start them, the gate of each machine does the rest
  kubenode.provision.hcloud_rescue:
    machines: "{{ fleet.machines }}"
    ssh_keys: [deploy]
    prove: false
  delegate_to: localhost
  run_once: true

- name: Once more for those that did not arrive
  kubenode.provision.hcloud_rescue:
    machines: "{{ rescued.machines | rejectattr('in_rescue') }}"
    ssh_keys: [deploy]
    rearm: true
  delegate_to: localhost
  run_once: true

- name: Give up the system of one machine
  kubenode.provision.hcloud_rescue:
    machines:
      - name: worker-1
      - name: worker-2
    ssh_keys: [deploy]
    reinstall: [worker-2]
  delegate_to: localhost

- name: Leave the rescue
  kubenode.provision.hcloud_rescue:
    state: os
    machines:
      - name: worker-1
  delegate_to: localhost
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
      sample: worker-1
    id:
      description: ID of the server.
      type: int
      sample: 42
    ipv4:
      description: Public IPv4 address, V(null) if there is none.
      type: str
      sample: 192.0.2.10
    ipv6:
      description: Public IPv6 network, V(null) if there is none.
      type: str
      sample: 2001:db8:0:1::/64
    ipv6_address:
      description: First address of that network, which is the address of the server in its rescue.
      type: str
      sample: 2001:db8:0:1::1
    status:
      description: Status of the server as far as it is known.
      type: str
      sample: running
    in_rescue:
      description: Whether the rescue answered by SSH, V(null) if it was not asked.
      type: bool
    hostname:
      description: Host name of the system that answered last by SSH.
      returned: when a system answered
      type: str
      sample: rescue
    boot_id:
      description: Boot ID of the system that answered last by SSH, V(null) if none did.
      type: str
      sample: 9a3c6fd4-7f60-4a30-a8fd-1f0c4b6ff1d3
    previous_boot_id:
      description: Boot ID of the system that ran before this call rebooted the machine, V(null) if that is not known.
      type: str
      sample: 0d1f3c55-39a4-4a1c-bf0e-3c2a7a2b8d11
    installed:
      description: Whether another system than the rescue runs and was left alone.
      type: bool
    installed_record:
      description: The installed record of the system that answered, V(null) if it has none.
      returned: when a system answered
      type: dict
      sample:
        machine: worker-1
        image_url: https://images.example.com/node.raw.zst
    installation:
      description:
        - Id of the installation that the rescue was armed for, or that the machine was made for; empty if it
          is not known.
      type: str
      sample: 5f0c6f1d2f9f4f0f8d3d1f2c3b4a5968
    fresh:
      description: Whether this run made the server, and nothing but its first image was on its disk before.
      type: bool
    consent:
      description: What allows the disks of the machine to be written, for the step after this one.
      type: str
      sample: fresh
    used:
      description: Why a name in O(reinstall) does nothing any more; empty when it does, or is not there.
      type: str
    proven:
      description: Whether the record of the system that was left alone says that this installation was verified.
      type: bool
    drift:
      description: In what the system that was left alone differs from O(wanted).
      type: list
      elements: dict
      contains:
        what:
          description: What differs.
          type: str
          sample: image_url
        runs:
          description: What the machine was made of.
          type: str
        since:
          description: When it was installed, as its record says.
          type: str
        wanted:
          description: What is asked for.
          type: str
    boot_state:
      description: Boot state of the machine, empty if it is not known.
      type: str
      sample: BootingToRescue
    boot_state_since:
      description: When the boot state began.
      type: str
      sample: '2026-11-21T00:00:00.000Z'
    transitions:
      description: Changes of the boot state during this call.
      type: list
      elements: dict
      sample:
        - machine: worker-1
          from: Initializing
          to: EnablingRescue
          at: '2026-11-21T00:00:19.000Z'
          seconds: 19.021
    api_calls:
      description: Requests that were made for this machine alone.
      type: int
      sample: 2
    changed:
      description: Whether anything about this machine was changed.
      type: bool
    failed:
      description: Whether this machine failed, now or in an earlier step.
      type: bool
    msg:
      description: What was done, or why it failed.
      type: str
      sample: is in the rescue
api_calls:
  description: Requests that were made for the whole fleet, shared ones included.
  returned: always
  type: int
  sample: 12
api_budget:
  description: The request limit of the project (C(limit) an hour) and what was C(remaining) of it; C(api) is V(hcloud).
  returned: when the API reports it
  type: dict
  sample: {api: hcloud, limit: 3600, remaining: 3592}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import VARIABLES
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_flow import BootOptions, boot_options
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_client import (
    Api,
    api_options,
    open_cloud,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.cloud_rescue import CloudRescue
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import progress_options, run_fleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import ssh_of


def argument_spec() -> dict[str, Any]:
    return dict(
        api_options(),
        ssh_keys={"type": "list", "elements": "raw", "default": [], "no_log": False},
        ssh_user={"type": "str", "default": "root"},
        ssh_port={"type": "int", "default": 22},
        rescue_timeout={"type": "int", "default": 360},
        variables=dict(VARIABLES),
        **boot_options(),
        **progress_options(),
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    options = BootOptions.of(params, ("reinstall", params["reinstall"]), module.check_mode)

    def work(api: Api) -> list[dict[str, Any]]:
        with ssh_of(params) as shell:
            fleet = CloudRescue(
                api, shell, options, params["ssh_keys"], params["ssh_private_key"], params["rescue_timeout"]
            )
            return fleet.run()

    run_fleet(module, work, open_cloud)


if __name__ == "__main__":
    main()
