#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pre_provision_command
short_description: Runs a program in the rescue system of a machine that may stop the machine before it is written
version_added: 1.0.0
description:
  - Waits until the machine's rescue system answers, copies a program of the user in, and runs it as root under a time
    limit. With exit code 0 the machine goes on. With any other one, at the time limit, and when the program cannot be
    run, the task fails and V(permanent) is true in its result.
  - Put it before everything that writes to the machine's disks, as the playbooks do.
  - It is what C(--pre-provision-command) of Cluster API Provider Hetzner (CAPH) is, on cloud machines as well. The
    program lies in C(/root) of the rescue under its own name, with mode 0700, and is called without arguments, in
    C(/root), with nothing on its stdin.
  - All of its environment is E(HOME), E(LANG), E(PATH), E(KUBENODE_MACHINE) (the machine's name), E(KUBENODE_PROVIDER)
    and E(KUBENODE_SERVER) (see O(provider) and O(server)), E(KUBENODE_LIMIT) (the time limit in seconds) and
    E(KUBENODE_RUN) (by which the program's processes are found when they must be ended). Nothing in it is secret.
  - Within a run of Ansible it is started once for a machine. When the connection is lost, the program goes on, and the
    task finds it again. A run that was interrupted leaves a program that ends by itself at its limit. The next run
    attaches to one that is still running, and starts one again that has ended.
  - When it ends, and at its time limit, every process that it started is ended, too.
  - It is not run when an image command or C(installimage) is running in this rescue, or has succeeded there. The run
    that started those was the one to ask.
options:
  command:
    description:
      - The program. The name of a file in O(command_dir), or a path of the controller, which holds a C(/).
      - Its name begins with a lower-case letter, ends with one or a digit, and holds only these and C(_), C(.), C(-),
        three characters at least.
      - It must be executable, and a script with an interpreter in its first line or an ELF file. A link that leads out
        of its directory is refused.
    type: str
    required: true
  command_dir:
    description: Directory on the controller in which O(command) lies.
    type: path
    default: /shared
  timeout:
    description:
      - Seconds that the program may take. Then it gets TERM, 10 seconds later KILL, with everything that it started.
    type: int
    default: 300
  provider:
    description: For E(KUBENODE_PROVIDER), whose machine it is.
    type: str
    choices: [hcloud, robot]
  server:
    description: For E(KUBENODE_SERVER), the id of the cloud server or the number of the dedicated server.
    type: str
  secrets:
    description:
      - What must not be seen in results, messages and the log although the program may have found it in the rescue,
        such as a registry token. Of a URL, the login and the query.
    type: list
    elements: str
    default: []
  bootstrap_data:
    description:
      - Bootstrap data of the machine, whose longer lines must not be seen either. It is not put into the rescue.
    type: raw
  bootstrap_data_file:
    description: File on the controller that holds the bootstrap data.
    type: path
  intent_file:
    description:
      - File with the machine's intent. What an earlier run claimed in it, and had not begun to write, is given up when
        the program stops the machine.
    type: path
  poll:
    description: Longest time in seconds between two looks at the program. Its end is noticed at once.
    type: float
    default: 2.0
  log_dir:
    description:
      - Directory on the controller for the log, which has the name of the machine with C(.pre-provision.log) behind it.
      - The default is C(kubenode-provision/logs) below E(XDG_STATE_HOME) or C(~/.local/state).
    type: path
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.hetzner.rescue_server
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
    details: Everything is checked on the controller, the machine is not contacted.
  diff_mode:
    support: N/A
    details: What the program does is not known before it runs.
  idempotent:
    support: none
    details: Each run of Ansible asks the program again, unless a machine is already being written or was.
seealso:
  - module: kubenode.provision.image_url_check
  - module: kubenode.provision.installimage_check
  - module: kubenode.provision.machine_quarantine
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Let a program look at the machine before anything is written
  kubenode.provision.pre_provision_command:
    command: check-hardware
    command_dir: /srv/image-commands
    provider: robot
    server: "321"
    timeout: 600
    log_dir: "{{ playbook_dir }}/logs"
"""

RETURN = r"""
machine_name:
  description: Name of the machine.
  type: str
  returned: always
  sample: node-1
in_rescue:
  description: Whether the rescue answered. When it did not within O(rescue_timeout), RV(boot_state) has not changed.
  type: bool
  returned: when the machine was contacted
permanent:
  description:
    - Whether the program stopped this machine, by another exit code than 0, by its time limit, or because it cannot be
      run. M(kubenode.provision.machine_quarantine) takes that.
  type: bool
  returned: when the machine was contacted
hostname:
  description: Hostname of the system that answered.
  type: str
  returned: when a system answered
  sample: rescue
boot_id:
  description: Boot id of the system that answered.
  type: str
  returned: when a system answered
ran:
  description: Whether the program was run. It is not when the machine is being written already, or was.
  type: bool
  returned: when the rescue answered
attached:
  description: Whether the program had been started before, and was attached to.
  type: bool
  returned: when the program ended
rc:
  description: Its exit code, V(null) when it was killed together with its runner.
  type: int
  returned: when the program ended
seconds:
  description: How long it ran.
  type: float
  returned: when the program ended
output_tail:
  description: The last lines that it printed, on stdout or stderr, with control characters shown as escapes.
  type: list
  elements: str
  returned: when the program ended
log_file:
  description: Log on the controller with the lines of stdout and stderr and the seconds since the start.
  type: str
  returned: when the program ended
command_path:
  description: Where the program was found.
  type: str
  returned: always
command_sha256:
  description: Its SHA-256 digest.
  type: str
  returned: always
boot_state:
  description: Boot state of the machine when the task ended.
  type: str
  returned: always
  sample: BootingToRescue
boot_state_since:
  description: Since when.
  type: str
  returned: always
  sample: "2026-11-21T10:00:00.000Z"
transitions:
  description: Every change of the boot state in this task, with C(machine), C(from), C(to), C(at) and C(seconds).
  type: list
  elements: dict
  returned: always
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("pre_provision_command", options.pre_provision_command_spec())


if __name__ == "__main__":
    main()
