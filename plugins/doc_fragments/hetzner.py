# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that modules of Hetzner's machines have in common, a part for each group of modules."""

from __future__ import annotations


class ModuleDocFragment:
    """Access to the two APIs, what a fleet needs, and what the steps in a rescue need."""

    # Modules that speak the Hetzner Cloud API for a fleet.
    HCLOUD = r"""
options:
  api_token:
    description:
      - Token of the Hetzner Cloud project. It needs read and write permission.
      - If the option is not set, the environment variable E(HCLOUD_TOKEN) is used.
    type: str
  api_endpoint:
    description:
      - Base address of the Hetzner Cloud API, including the version.
      - If the option is not set, the environment variable E(HCLOUD_ENDPOINT) is used, and without that one
        V(https://api.hetzner.cloud/v1).
    type: str
  on_error:
    description:
      - What the task does when single machines fail. The result of every machine is returned in any case.
      - V(fail) fails the task after all machines are done.
      - V(report) only marks what failed by C(failed) in its result.
      - Errors that concern the whole fleet (credentials, impossible input, a budget that cannot suffice) always fail
        the task, and they do so before anything is changed.
    type: str
    choices: [fail, report]
    default: fail

requirements:
  - hcloud >= 2.0.0 (Python library, on the controller)
  - requests

notes:
  - The module runs on the controller and handles the whole fleet in one process. Use it with C(delegate_to=localhost)
    and C(run_once=true), or in a play on V(localhost).
  - The rate limit of the project (usually 3600 requests per hour) is read from every answer. Requests are paced when
    it runs short, and refused before the first change when it cannot suffice.

seealso:
  - name: Hetzner Cloud API
    description: Complete reference of the Hetzner Cloud API.
    link: https://docs.hetzner.cloud
"""

    # Modules that speak the Robot webservice for a fleet.
    ROBOT = r"""
options:
  robot_user:
    description:
      - Name of the webservice user (C(#ws+…)), which is made in the settings of Robot. It is not the login of Robot.
      - If the option is not set, the environment variable E(HROBOT_API_USER) is used.
    type: str
  robot_password:
    description:
      - Password of the webservice user.
      - If the option is not set, the environment variable E(HROBOT_API_PASSWORD) is used.
    type: str
  endpoint:
    description:
      - Base address of the Robot webservice. Without TLS only on the loopback interface.
      - If the option is not set, the environment variable E(HROBOT_ENDPOINT) is used, and without that one
        V(https://robot-ws.your-server.de).
    type: str
  on_error:
    description:
      - What the task does when single machines fail. The result of every machine is returned in any case.
      - V(fail) fails the task after all machines are done.
      - V(report) only marks the machines by RV(machines[].failed).
      - Errors that concern the whole fleet (credentials, impossible input, an hourly limit that cannot suffice) always
        fail the task, and they do so before anything is changed.
    type: str
    choices: [fail, report]
    default: fail

requirements:
  - requests

notes:
  - The module runs on the controller and handles the whole fleet in one process. Use it with C(delegate_to=localhost)
    and C(run_once=true), or in a play on V(localhost).
  - Robot blocks an address for 10 minutes after three failed logins. The first request is therefore made alone, and
    the first answer 401 ends everything; a fleet costs one failed login.
  - Robot limits the requests of an account within an hour. Requests are counted, and held back for 30 to 60 seconds at
    a time when Robot says that a limit is reached.

seealso:
  - name: Robot webservice
    description: Complete reference of the Robot webservice.
    link: https://robot.hetzner.com/doc/webservice/en.html
"""

    # Modules that take a fleet through a provider's API.
    PROGRESS = r"""
options:
  progress:
    description:
      - What is shown while the task runs. By default V(fleet) from four machines on, else V(lines).
      - Nothing is shown when the task does not run on the controller itself, becomes another user, is asynchronous or
        has C(no_log).
    type: str
    choices:
      fleet: On a terminal one table of the machines, elsewhere a line each 15 seconds that sums the fleet up.
      lines: A line for each step of each machine.
      none: Failures only.
  progress_file:
    description:
      - File on the host the module runs on, to which a line of JSON is appended for each change of a machine. It is
        made when it is not there.
      - A line has C(machine), C(state) (its boot state, perhaps empty), C(text), C(ended) and C(failed), and
        C(requests) with the requests C(made) by the module, the C(limit) of the account and what is C(remaining) of it,
        both V(null) where they are not known.
      - By default, the task uses a file of its own for what it shows. With this option, nothing is shown.
    type: path
"""

    # Modules that boot machines into their rescue: how systems are reached, what to do about one that differs.
    BOOT_RESCUE = r"""
options:
  access:
    description:
      - How the installed systems are reached where that differs from the rescue, which is C(root) on port 22. Each has
        the C(name) of its machine, and any of C(os_user), C(os_port), C(os_private_key) and C(host_keys). A system that
        shows none of its C(host_keys) is not C(proven).
      - C(ssh_args) are more arguments for the SSH client to this machine, rescue and system, such as those of its jump
        host.
    type: list
    elements: dict
    default: []
  ssh_args:
    description:
      - More arguments for the SSH client, to all machines, for example C(-J bastion.example.com). Options that the
        module sets itself cannot be changed.
    type: str
    default: ''
  known_hosts_dir:
    description:
      - Directory for the host keys of this run, one file C(NAME.rescue) for each machine.
      - Without it, a temporary directory is used and removed at the end.
    type: path
  drift:
    description: What becomes of a machine that runs something else than O(wanted).
    type: str
    choices:
      report: It is left alone, and the result says so.
      fail: It fails.
    default: report
  intents_dir:
    description:
      - Folder on the controller for what a run is about to do to each machine, one file C(NAME.json). It is written
        before a rescue is armed, and says what later runs have to finish.
      - With it, a rescue that was not started for an open intent is refused, since a person may be at work there;
        O(reinstall) permits it. Without it, nothing is remembered, and any rescue will do.
      - Of dedicated servers, a file C(.robot-resets-…) beside them keeps when resets were sent to the account in the
        last hour, and what the webservice said of its limit, for the arithmetic of the next run.
    type: path
  state:
    description:
      - V(rescue) boots the machines into their rescue.
      - V(os) disarms the rescue, and reboots a machine that is in its rescue to its disk.
      - V(disarmed) only takes back what is armed, so that the next boot leads to the disk. The machine is not asked.
    type: str
    choices: [rescue, os, disarmed]
    default: rescue
  wanted:
    description:
      - What each machine is to be made of, with its C(name), and any of C(image_url), C(image_digest), C(command) and
        C(proof); of a cloud server also C(server_type) and C(location).
      - A system that is left alone is compared with it, see RV(machines[].drift).
      - With C(proof=port) or C(proof=none), a machine that does not let us in is left alone when the installation of
        its intent was finished, and something answers on its port or nothing needs to. It is never called verified.
    type: list
    elements: dict
    default: []
"""

    # Checks of a whole fleet before anything is done.
    CHECK = r"""
options:
  ssh_private_key:
    description:
      - Private key that SSH will use. It must be readable, and open without a passphrase or be held by an agent.
    type: path
  steps:
    description:
      - The machines as the filter P(kubenode.provision.install_plan#filter) makes them without a C(phase). The options
        of their steps are checked, too, and messages name the variables that hold them.
    type: list
    elements: dict
    default: []
"""

    # Modules that do something in a rescue: whose it must be, and how far the machine is.
    RESCUE_SERVER = r"""
options:
  addresses:
    description:
      - Public addresses of the machine's server, IPv4 addresses or IPv6 networks. A rescue that has none of them is
        another server's, and nothing is done there.
      - By default, the addresses of the rescue are not checked.
    type: list
    elements: str
  boot_state:
    description: Boot state of the machine when the task begins, as the step before returned it.
    type: str
    default: BootingToRescue
  boot_state_since:
    description:
      - Since when the machine is in O(boot_state), as the step before returned it.
      - The default is the begin of the task.
    type: str
  host_keys:
    description:
      - Public SSH host keys of the rescue, as lines of C(.pub) files. No system with another key is used.
      - M(kubenode.provision.robot_rescue) returns them, proven against the fingerprints that the Robot API reports.
      - Without them, the first key that the rescue shows is pinned for that boot.
    type: list
    elements: str
  known_hosts_dir:
    description:
      - Directory on the controller for the SSH host keys that the machine showed. The user's own C(known_hosts) is
        left alone.
      - The first key that a rescue shows is pinned for the rest of that boot within this run of Ansible, because a
        rescue has new keys at every boot and cloud APIs do not list them. Another key is refused afterwards.
      - The default is a temporary directory of this run.
      - Only used when the connection is P(ansible.builtin.ssh#connection).
    type: path
  machine_name:
    description:
      - Name of the machine.
      - The default is the name of the host in the inventory.
    type: str
  previous_boot_id:
    description:
      - Boot id of the system that was seen before the reset. As long as it answers, the rescue has not been reached.
    type: str
  rescue_timeout:
    description: Seconds to wait until the rescue answers by SSH.
    type: int
    default: 360
"""

    # Those that write a system there.
    INSTALLATION = r"""
options:
  bootstrap_data_file:
    description: File on the controller that holds the bootstrap data. It may be encrypted by Ansible Vault.
    type: path
  consent:
    description:
      - What allows to write the disks, as the step before returned it; several words are joined by C(+). It goes into
        the record of the new system.
      - V(empty) - the disks must hold nothing.
      - V(fresh) - the machine was made for this installation, and nothing but its first image was on its disks. They
        are emptied first, so that a command which writes nothing leaves nothing that boots.
      - V(reinstall) - the system that was there may go. The disks are emptied first.
      - V(named) - O(reinstall) names the machine; what lies on its disks says whether that word was used up before.
      - V(wipe) and V(checked) - M(kubenode.provision.machine_disks) has looked at the disks, and emptied them or left
        that to O(empty).
    type: str
    default: empty
  installation:
    description:
      - Id of the installation, 32 hexadecimal digits, as M(kubenode.provision.hcloud_rescue) or
        M(kubenode.provision.robot_rescue) returned it. The command finds it in the environment variable
        E(KUBENODE_INSTALLATION) and in C(/root/.kubenode/installation); the new system shows it in its record.
      - The default is a new one.
    type: str
  intent_file:
    description:
      - File with the intent that the module which armed the rescue wrote. It is put into the rescue, so that another
        controller can go on.
    type: path
  reinstall:
    description:
      - Names of machines that may be written again, or a dictionary of names and installations, for O(consent=named).
    type: raw
    default: []
"""

    # Modules that a playbook of the collection fills from variables.
    VARIABLES = r"""
options:
  variables:
    description:
      - Names of options, also of those of a machine, and of the variables that hold them. Messages name the variable.
      - The playbooks of this collection set it, since they take the options from variables of hosts.
    type: dict
    default: {}
"""
