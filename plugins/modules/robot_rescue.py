#!/usr/bin/python

# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: robot_rescue
short_description: Boot the dedicated servers of a whole fleet into their rescue system, and prove it
version_added: 1.0.0
author: kubenode.provision authors (@kubenode)
description:
  - Arms the rescue system and resets the machine by the gentlest way that can work. A system that accepts our SSH
    key and may be given up is rebooted by SSH. Otherwise CTRL+ALT+DEL is sent (V(sw)) where the server offers it, then
    the reset button is pressed (V(hw)), then the power button (V(power)), then the reset button once more, and at last
    it is woken by Wake on LAN. A server that Robot calls C(shut off) gets its power button pressed. A technician is
    never sent, and the power button never held.
  - When the rescue does not come within the limit of a way, the next way is taken. A rescue that was armed and spent
    meanwhile is armed again before that.
  - A machine in its rescue is left there. A machine whose system accepts our SSH key is left alone, unless
    O(reinstall) names it. A machine that is switched off is armed and started, because that changes nothing on
    its disks.
  - A machine that is powered and does not answer, or refuses our key, may be in production. It
    is refused and left as it is unless its C(first_contact) in O(machines) permits it. Then it is armed and reset;
    should a system with an installed record of ours come up instead, it is left alone.
  - When the module fails for a machine, it disables its rescue again, so that the next boot is from disk.
  - A machine whose new system was proven by an earlier run, as O(known_hosts_dir) remembers, is refused when it does
    not answer or refuses our key, because it may be a node whose network is down. O(reinstall) lets it be reset.
  - Before anything is said to the rescue, its SSH host keys are checked against the fingerprints that Robot reports.
    Keys that fit are kept in O(known_hosts_dir) and returned; the known_hosts files of the user are neither read nor
    written. To find out which system runs on a machine in the first place, the system that answers is asked; nothing
    secret is sent.
  - With O(state=os), a machine leaves its rescue by a reboot over SSH.
  - The SSH key is found in Robot by its material and registered when Robot does not know it.
  - A first provisioning costs three requests for the fleet and three for each machine, and one reset for each machine.
extends_documentation_fragment:
  - kubenode.provision.hetzner.robot
  - kubenode.provision.hetzner.boot_rescue
  - kubenode.provision.attributes
  - kubenode.provision.hetzner.progress
  - kubenode.provision.attributes.own_run
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
    details:
      - Servers are read and asked by SSH which system they run; nothing is changed. The message of each machine
        names the reset that would be sent first.
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
      - C(first_contact=reset) permits the reset of a machine although it is not known what it runs.
        C(first_contact=once) does so until a run has ended for the machine, as its intent in O(intents_dir) says;
        this is for a word that may be left over.
      - Results of earlier steps are accepted. A machine that already C(failed) is handed on as it is.
    type: list
    elements: dict
    required: true
  ssh_private_key:
    description:
      - File of the SSH private key on the controller.
      - Without it the SSH client uses the agent or the keys it finds by itself. A file of a public key means the key of
        an agent.
    type: path
  ssh_public_key:
    description:
      - SSH public key that may log in to the rescue, as text or as a file on the controller. Only this one can.
      - The default is the public half of O(ssh_private_key). Without either, they are those keys of the agent of SSH
        that Robot knows; its only key is registered where Robot does not know it.
    type: str
  ssh_key_name:
    description:
      - Name under which the SSH public key is registered if Robot does not know it. A key that Robot knows keeps
        its name.
    type: str
    default: kubenode.provision
  host_key_checking:
    description:
      - V(strict) accepts a system as the rescue only with a host key that Robot reports for it.
      - V(accept-new) trusts the first contact, for locations where Robot does not report host keys.
    type: str
    choices: [strict, accept-new]
    default: strict
  reinstall:
    description:
      - Names of machines whose present system may be given up. The module itself overwrites nothing.
      - A dictionary of names and installations (at least the first eight digits of their ids) says which installation
        goes. A bare name counts once; it does nothing for a system whose record says that such a word installed it.
      - Names of other machines do nothing.
    type: raw
    default: []
  release:
    description:
      - The same for machines that are given back. Nothing will be installed, so a bare name is not used up by an
        earlier installation.
      - Mutually exclusive with O(reinstall).
    type: raw
    default: []
  look_only:
    description:
      - Whether the rescue is only wanted for a look at the machine. Then any rescue is taken, also one that a person
        has started. A machine that is switched off is left off, unless its C(first_contact) or O(reinstall) permits
        what it permits for one that is powered.
    type: bool
    default: false
  rearm:
    description:
      - Whether to go on with machines that an earlier call reset and that did not arrive in their rescue. They are
        recognised by C(boot_state=BootingToRescue) in O(machines), unless they are C(permanent).
      - What is left of the limit of the last reset in C(resets) is waited for, then the next way is taken.
    type: bool
    default: false
  prove:
    description:
      - Whether to wait until the rescue answers by SSH as root, with a proven host key and a new boot ID.
      - With V(false) the module is done when the first reset was sent.
    type: bool
    default: true
  give_back_after:
    description:
      - Seconds after its reset at which a machine that is not in its rescue yet is handed back, unfailed, with
        C(in_rescue=false), C(armed=true) and C(boot_state=BootingToRescue), so that no other waits for it. A later call
        with O(rearm=true) goes on with it.
      - With V(0), no machine is handed back.
    type: int
    default: 0
  look_timeout:
    description: Seconds each machine has for answering by SSH before it counts as silent.
    type: int
    default: 15
  ssh_timeout:
    description:
      - Seconds for the rescue to come after a reboot by SSH. A system that goes on answering for two minutes did
        not obey.
    type: int
    default: 480
  sw_timeout:
    description: Seconds for the rescue to come after CTRL+ALT+DEL.
    type: int
    default: 600
  hw_timeout:
    description: Seconds for the rescue to come after the reset button.
    type: int
    default: 600
  power_timeout:
    description: Seconds for the rescue to come after the power button, and after Wake on LAN.
    type: int
    default: 600
  timeout:
    description: Seconds each machine has for each step at the webservice, including repeated requests.
    type: int
    default: 360
  max_resets:
    description:
      - Resets by the webservice that may be sent within an hour. Robot takes 50 of an account; use less when others
        use the same account.
    type: int
    default: 50
  on_reset_limit:
    description:
      - What to do when more machines need a reset by the webservice than O(max_resets) leaves.
      - V(refuse) fails with the arithmetic before anything is changed.
      - V(pace) resets as many as possible now and the others as the hour permits.
    type: str
    choices: [refuse, pace]
    default: refuse
seealso:
  - module: kubenode.provision.robot_server
  - module: kubenode.provision.hcloud_rescue
  - module: community.hrobot.boot
"""

EXAMPLES = r"""
- name: Boot dedicated servers into their rescue
  kubenode.provision.robot_rescue:
    machines:
      - name: node-1
        server_number: 321
      - name: node-2
        server_ip: 192.0.2.20
    ssh_private_key: ~/.ssh/deploy
    known_hosts_dir: build/known_hosts
    give_back_after: 180
  delegate_to: localhost
  run_once: true
  register: rescued

- name: Go on with those that did not arrive yet
  kubenode.provision.robot_rescue:
    machines: "{{ rescued.machines | rejectattr('in_rescue') }}"
    ssh_private_key: ~/.ssh/deploy
    known_hosts_dir: build/known_hosts
    rearm: true
  delegate_to: localhost
  run_once: true

- name: Give up the system of one machine
  kubenode.provision.robot_rescue:
    machines:
      - name: node-1
      - name: node-2
    ssh_private_key: ~/.ssh/deploy
    reinstall: [node-2]
  delegate_to: localhost

- name: Leave the rescue
  kubenode.provision.robot_rescue:
    state: os
    machines:
      - name: node-1
    ssh_private_key: ~/.ssh/deploy
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
      sample: node-1
    server_number:
      description: Number of the server.
      type: int
      sample: 321
    server_name:
      description: Name of the server in Robot.
      type: str
      sample: server-321
    ipv4:
      description: Main IPv4 address, V(null) if there is none.
      type: str
      sample: 192.0.2.10
    ipv6:
      description: IPv6 network, V(null) if there is none.
      type: str
      sample: 2001:db8:0:1::/64
    ipv6_address:
      description: Address of the server in that network, which is used when there is no IPv4 address.
      type: str
      sample: 2001:db8:0:1::2
    product:
      description: Product of the server.
      type: str
      sample: AX41-NVMe
    reset_types:
      description: Resets that Robot offers for the server; empty when the module did not need them.
      type: list
      elements: str
      sample: [hw, power, power_long, man]
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
      description: Boot ID of the system that ran before this call reset the machine, V(null) if that is not known.
      type: str
      sample: 0d1f3c55-39a4-4a1c-bf0e-3c2a7a2b8d11
    first_contact:
      description: What O(machines) said of it, so that a later call may be given these results.
      type: str
      returned: when it was given
      sample: reset
    installed:
      description: Whether another system than the rescue runs and was left alone.
      type: bool
    installed_record:
      description: The installed record of the system that answered, V(null) if it has none.
      returned: when a system answered
      type: dict
      sample:
        machine: node-1
        image_url: https://images.example.com/node.raw.zst
    resets:
      description:
        - The resets of the machine, oldest first, those of the call before included with O(rearm=true). C(way) is
          one of C(ssh), C(sw), C(hw), C(power) and C(wol), C(at) is the time in UTC.
      type: list
      elements: dict
      sample:
        - way: hw
          at: '2026-11-21T00:00:02.000Z'
    host_keys:
      description:
        - Public SSH host keys of the rescue, proven against the fingerprints that Robot reports. Empty when the
          rescue was not reached, or trusted on first contact.
      type: list
      elements: str
      sample: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA…]
    armed:
      description: Whether the rescue is armed for the next boot, as far as it is known.
      type: bool
    permanent:
      description: Whether the machine failed in a way that no further run can repair.
      type: bool
    installation:
      description:
        - Id of the installation that the rescue was armed for, or that the machine was made for; empty if it
          is not known.
      type: str
      sample: 5f0c6f1d2f9f4f0f8d3d1f2c3b4a5968
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
        - machine: node-1
          from: EnablingRescue
          to: BootingToRescue
          at: '2026-11-21T00:00:02.000Z'
          seconds: 0.842
    api_calls:
      description: Requests that were made for this machine alone.
      type: int
      sample: 3
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
  sample: 9
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.option_values import VARIABLES
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.boot_flow import BootOptions, boot_options
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.fleet_run import progress_options, run_fleet
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.reset_escalation import time_limits
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_client import (
    Robot,
    open_robot,
    robot_options,
)
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.robot_rescue import RobotOptions, RobotRescue
from ansible_collections.kubenode.provision.plugins.module_utils._hetzner.ssh import ssh_of


def argument_spec() -> dict[str, Any]:
    return dict(
        robot_options(),
        ssh_public_key={"type": "str", "no_log": False},
        ssh_key_name={"type": "str", "default": "kubenode.provision", "no_log": False},
        host_key_checking={"type": "str", "choices": ["strict", "accept-new"], "default": "strict", "no_log": False},
        release={"type": "raw", "default": []},
        look_only={"type": "bool", "default": False},
        give_back_after={"type": "int", "default": 0},
        look_timeout={"type": "int", "default": 15},
        ssh_timeout={"type": "int", "default": 480},
        sw_timeout={"type": "int", "default": 600},
        hw_timeout={"type": "int", "default": 600},
        power_timeout={"type": "int", "default": 600},
        max_resets={"type": "int", "default": 50},
        on_reset_limit={"type": "str", "choices": ["refuse", "pace"], "default": "refuse"},
        variables=dict(VARIABLES),
        **boot_options(),
        **progress_options(),
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    if params["release"] and params["reinstall"]:
        module.fail_json(msg="release and reinstall exclude each other: give a machine back, or write it again")
    pace = params["on_reset_limit"] == "pace"

    def work(api: Robot) -> list[dict[str, Any]]:
        more = RobotOptions(
            limits=time_limits(params),
            key=(params["ssh_public_key"], params["ssh_private_key"]),
            key_name=params["ssh_key_name"],
            look_timeout=params["look_timeout"],
            strict=params["host_key_checking"] == "strict",
            give_back_after=params["give_back_after"],
            look_only=params["look_only"],
            pace=pace,
        )
        word = ("release", params["release"]) if params["release"] else ("reinstall", params["reinstall"])
        options = BootOptions.of(params, word, module.check_mode)
        # A rescue has one user and one port.
        with ssh_of(dict(params, ssh_user="root", ssh_port=22)) as shell:
            return RobotRescue(api, shell, options, more).run()

    run_fleet(module, work, open_robot(params["max_resets"], pace))


if __name__ == "__main__":
    main()
