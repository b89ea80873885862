#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_quarantine
short_description: Keeps machines with a permanent error out of later runs
version_added: 1.0.0
description:
  - Some errors stay when a run is repeated, such as a broken disk, a rescue that no reset brings up, or a host key
    that is not the one the API reports. A machine with such an error gets a small file on the controller, and is left
    alone until a user says that it is repaired.
  - Runs on the controller and contacts no machine.
options:
  machines:
    description: The machines, at least with C(name). Results of the fleet modules are taken as they are, and handed on.
    type: list
    elements: dict
    required: true
  quarantine_dir:
    description: Directory of the files, one for each machine. On AWX it must outlive the job.
    type: path
    required: true
  state:
    description:
      - V(checked) fails for machines that are in quarantine, after letting those out that O(clear) names.
      - V(set) puts those into quarantine whose C(failed) and C(permanent) are both true, with their C(msg) as reason.
        An older reason stays.
    type: str
    choices: [checked, set]
    default: checked
  clear:
    description: Names of machines that are repaired.
    type: list
    elements: str
    default: []
  on_error:
    description: Whether a machine in quarantine fails the task (V(fail)), or only its own result (V(report)).
    type: str
    choices: [fail, report]
    default: fail
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.robot_rescue
  - module: kubenode.provision.machine_disks
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Leave out machines that are in quarantine
  kubenode.provision.machine_quarantine:
    machines:
      - name: node-1
      - name: node-2
    quarantine_dir: /var/lib/kubenode/quarantine
    clear: [node-2]

- name: Remember those that failed permanently
  kubenode.provision.machine_quarantine:
    machines: "{{ armed.machines }}"
    quarantine_dir: /var/lib/kubenode/quarantine
    state: set
"""

RETURN = r"""
machines:
  description: The machines as they were given, in their order, with the following in addition.
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: Name of the machine.
      type: str
      returned: always
    failed:
      description: Whether the machine must be left alone.
      type: bool
      returned: always
    changed:
      description: Whether it was put in quarantine or let out.
      type: bool
      returned: always
    quarantined:
      description: Whether it is in quarantine now.
      type: bool
      returned: always
    msg:
      description: Since when and why, and how to let it out.
      type: str
      returned: always
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("machine_quarantine", options.machine_quarantine_spec())


if __name__ == "__main__":
    main()
