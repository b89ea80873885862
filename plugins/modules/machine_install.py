#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_install
short_description: Writes the disks of many machines in their rescues, boots the new systems and proves them
version_added: 1.0.0
description:
  - Takes each machine through its steps, which are the modules of the same names - a program of the user that may stop
    it, its disks, an image command or C(installimage), the reboot and the proof of the new system. Each step gets what
    the steps before it found out.
  - All machines go at once, in one process on the controller, each at its own pace. One C(ssh) stays open to each
    system of a machine; no other process and no fork of Ansible is spent on waiting.
  - A machine is reached as C(root) on port 22, in all else as its host variables C(ansible_ssh_*) say.
  - To be run once for all hosts (C(run_once)).
options:
  machines:
    description:
      - The machines, each a host of the inventory. The filter P(kubenode.provision.install_plan#filter) makes this
        list.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the host, which is the name of the machine.
        type: str
        required: true
      address:
        description: Where the machine is reached. By default, where its host variables say.
        type: str
      refused:
        description: Why nothing is done with this machine. It is returned as failed.
        type: str
      notes:
        description: What is to be said of the machine in any case, as warnings.
        type: list
        elements: str
      installed:
        description: Whether the machine was found running an installed system.
        type: bool
        default: false
      may_be_late:
        description:
          - Whether a machine that does not reach its rescue has not failed, but is returned as C(late), since another
            try follows.
        type: bool
        default: false
      second_try:
        description: Whether the machine was late before, so that it is shown as failed when it is late again.
        type: bool
        default: false
      pre_provision_command:
        description: Options of M(kubenode.provision.pre_provision_command). Without them, the step is left out.
        type: dict
      machine_disks:
        description:
          - Options of M(kubenode.provision.machine_disks). Without them, the step is left out. The disks that it finds
            are those that are written.
        type: dict
      image_url_command:
        description:
          - Options of M(kubenode.provision.image_url_command). Without them, the step is left out.
          - Without O(ignore:poll), here and in the other steps that have it, it is a quarter of the number of machines
            in seconds, at least 2 and at most 15.
        type: dict
      robot_installimage:
        description: Options of M(kubenode.provision.robot_installimage). Without them, the step is left out.
        type: dict
      machine_boot:
        description: Options of M(kubenode.provision.machine_boot). Without them, the step is left out.
        type: dict
  throttle:
    description:
      - So many machines write their disks at once. The others wait in their rescue, each until one has written. V(0)
        is all of them.
      - A machine whose program runs already, or has ended, does not wait.
    type: int
    default: 0
  on_error:
    description: Whether the task fails when a machine has failed.
    type: str
    choices:
      fail: It fails.
      report: It does not, and C(machines) says which ones failed.
    default: fail
  progress:
    description: What is shown while the task runs. By default V(fleet) from four machines on, else V(lines).
    type: str
    choices:
      fleet: On a terminal one table of the machines, elsewhere a line each 15 seconds that sums the fleet up.
      lines: A line for each step of each machine.
      none: Failures only.
  variables:
    description:
      - For each step, the names of its options and of the variables that hold them. Messages name the variable.
      - The playbooks of this collection set it, since they take the options from variables of hosts.
    type: dict
    default: {}
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: What each disk that would be or was emptied held, and the configuration of installimage, for each machine.
  idempotent:
    support: full
    details: A program that was started in a rescue is not started again, and a system that was proven is left alone.
seealso:
  - module: kubenode.provision.image_url_command
  - module: kubenode.provision.robot_installimage
  - module: kubenode.provision.machine_disks
  - module: kubenode.provision.machine_boot
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Write the image on two machines that are in their rescue, and boot it
  kubenode.provision.machine_install:
    machines:
      - name: node-1
        address: 203.0.113.11
        image_url_command:
          image_url: https://images.example.com/node.raw.zst
          command: image-url-command-raw-disk
        machine_boot: {}
      - name: node-2
        address: 203.0.113.12
        image_url_command:
          image_url: https://images.example.com/node.raw.zst
          command: image-url-command-raw-disk
        machine_boot: {}
  run_once: true

- name: The same for all hosts of the play that an API phase has brought into their rescue
  kubenode.provision.machine_install:
    machines: >-
      {{ ansible_play_hosts | map('extract', hostvars)
         | kubenode.provision.install_plan('hcloud_image_url', armed.machines, '/var/lib/kubenode') }}
  run_once: true
"""

RETURN = r"""
machines:
  description: One result for each machine, in the order of the option.
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the machine.
      type: str
    address:
      description: The address that was given.
      type: str
    failed:
      description: Whether the machine failed.
      type: bool
    warned:
      description:
        - What its steps warned of, such as a disk that is not written and that the firmware could start. Each warning
          was shown before the next step began.
      type: list
      elements: str
    runs:
      description: Whether it runs its installed system, the one that was found or the new one.
      type: bool
    late:
      description: Whether it did not reach its rescue.
      type: bool
    changed:
      description: Whether something was changed on it.
      type: bool
    msg:
      description: What the last step said.
      type: str
    in_rescue:
      description: Whether the rescue was reached. Missing when it was not asked for.
      type: bool
    permanent:
      description: Whether the machine failed for a reason that another try as it is cannot help.
      type: bool
    verified:
      description: Whether the new system was proven. Missing when it did not come to that.
      type: bool
    stderr_tail:
      description: The last lines of stderr of the last program that ran in its rescue.
      type: list
      elements: str
    interleaved_tail:
      description: The last lines of its log, with the seconds since the start and C(out) or C(err).
      type: list
      elements: str
    boot_state:
      description: Boot state of the machine at the end.
      type: str
    boot_state_since:
      description: Since when.
      type: str
    transitions:
      description: Every change of the boot state, with C(machine), C(from), C(to), C(at) and C(seconds).
      type: list
      elements: dict
    steps:
      description: The results of the steps that were taken, as their modules return them, by the name of the module.
      type: dict
by_name:
  description: The same results by the names of the machines.
  type: dict
  returned: always
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("machine_install", options.machine_install_spec())


if __name__ == "__main__":
    main()
