#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_lock
short_description: Keeps two runs of one controller from working on the same machine
version_added: 1.0.0
description:
  - Two runs over the same machine take the rescue away from each other, and one of them fails although nothing is wrong
    with the machine. This task writes a small file for each machine, which names the process of this run of Ansible,
    and fails for all machines when one of them has such a file of another run that is still going on.
  - Nothing needs to be unlocked. A file counts only while its process lives, so the run after one that was killed
    goes on at once.
  - A file that a run of another controller wrote into the same directory is only a warning, as long as it is younger
    than a day; whether that run is still going on cannot be seen from here.
  - Runs on the controller and contacts no machine.
options:
  names:
    description: Names of the machines.
    type: list
    elements: str
    required: true
  lock_dir:
    description: Directory of the files, one for each machine.
    type: path
    required: true
  state:
    description:
      - V(taken) takes the machines for this run, or fails.
      - V(released) removes the files, except those of another run that is going on. For machines that are gone.
    type: str
    choices: [taken, released]
    default: taken
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
attributes:
  check_mode:
    support: full
    details: Takes no lock; another run gives a warning.
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.machine_quarantine
  - module: kubenode.provision.machine_install
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Lock the machines, so that no other run works on them
  kubenode.provision.machine_lock:
    names: "{{ ansible_play_hosts }}"
    lock_dir: /var/lib/kubenode/locks
  run_once: true
"""

RETURN = r"""
machines:
  description: Names of the machines that another run works on, sorted.
  type: list
  elements: str
  returned: always
msg:
  description: Which run works on which machine, and what to do.
  type: str
  returned: when another run works on one of them, outside of check mode
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("machine_lock", options.machine_lock_spec())


if __name__ == "__main__":
    main()
