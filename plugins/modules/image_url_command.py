#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_url_command
short_description: Runs an image command in the rescue system of a machine
version_added: 1.0.0
description:
  - Waits until the machine's rescue system answers, copies an image command and the bootstrap data in, runs the
    command detached under a time limit, watches it, and collects its logs.
  - The protocol inside the rescue is that of Cluster API Provider Hetzner (CAPH), so commands written for it work
    unchanged. The command is called as C(/root/image-url-command IMAGE_URL /root/bootstrap.data MACHINE_NAME
    "DEVICE [DEVICE…]"), finds the registry token in the environment variable E(OCI_REGISTRY_AUTH_TOKEN), may write
    C(/root/output.json) with a C(message) about its progress, and prints a line that contains C(IMAGE_URL_DONE) as
    the last line of its stdout.
  - A task that is run again attaches. A command that runs is watched, one that has succeeded is not run again,
    one that has failed is started again. The same command means the same program, image URL, bootstrap data,
    machine name and devices.
  - A command of more than 1 MiB is uploaded before it is started, in pieces and once per rescue. An upload that was
    interrupted continues when the task runs again. The rescue needs memory for it twice, and 256 MiB beside it.
  - The command goes on when the controller or the connection is lost, and ends at its time limit by itself, with
    every process that it started.
options:
  image_url:
    description:
      - First argument of the image command. An absolute URL or an absolute path, exactly as Go's
        C(url.ParseRequestURI) takes it. A command that is shipped with this collection takes less; what it never takes
        is refused before anything is done.
      - User info, query and fragment are passed on, and left out of results and messages.
    type: str
    required: true
  command:
    description:
      - Name of the image command. It begins with C(image-url-command-), see O(command_names), and holds no C(/) and no
        C(..).
    type: str
    required: true
  command_dir:
    description:
      - Directory on the controller in which O(command) lies. A command that is shipped with this collection is
        found by its name when the directory lacks it.
    type: path
    default: /shared
  command_names:
    description:
      - Which names of image commands are taken. V(prefixed) refuses those that do not begin with
        C(image-url-command-), V(any) takes every plain name.
    type: str
    choices: [prefixed, any]
    default: prefixed
  require_digest:
    description:
      - Refuse an O(image_url) that does not fix its content by a digest, before the machine is contacted. An
        C(oci://) URL says it with C(@sha256:) and 64 hexadecimal digits, any other one with C(#sha256=) or C(#sha512=).
      - The image command verifies it. The shipped ones do.
    type: bool
    default: false
  check_image:
    description:
      - Ask for O(image_url) from the rescue right before the disks are emptied, and leave them as they are when it
        cannot be fetched. An C(http) or C(https) URL is asked for by HEAD, or by GET of its first byte, an C(oci) URL
        by its manifest and with O(oci_registry_auth_token). Other schemes are not looked at. The proxies of the
        rescue's environment count.
      - The digest of a file is known only when all of it was read, so a wrong one is found while the disk is written.
      - V(false) is for image commands that get the image in a way of their own.
    type: bool
    default: true
  empty:
    description:
      - Disks to empty before the command starts, as RV(kubenode.provision.machine_disks#module:to_empty) lists them.
        They are emptied when the image was found, and only if they still hold what was found before.
    type: list
    elements: dict
    default: []
  still_empty:
    description:
      - Disks that hold nothing, as RV(kubenode.provision.machine_disks#module:found_empty) lists them. The command is
        started only if they hold nothing still, and have the names that they had.
    type: list
    elements: dict
    default: []
  machine_name:
    description:
      - Name of the machine, third argument of the image command.
      - The default is the name of the host in the inventory.
    type: str
  root_devices:
    description:
      - Devices that the command may write, without directory. Kernel names, WWNs or names below C(/dev/disk/by-id).
    type: list
    elements: str
    default: [sda]
  bootstrap_data:
    description:
      - What the command finds in C(/root/bootstrap.data), such as cloud-init user data or an Ignition configuration.
      - A dictionary is turned into JSON.
      - Mutually exclusive with O(bootstrap_data_file). Without both, the file is empty.
    type: raw
  oci_registry_auth_token:
    description:
      - Token for a registry, handed over in the environment variable E(OCI_REGISTRY_AUTH_TOKEN).
      - If not set, the controller's environment variable E(OCI_REGISTRY_AUTH_TOKEN) is used.
      - The playbooks take it from the variable C(kubenode_registry_token), which may be encrypted by Ansible Vault.
    type: str
  timeout:
    description:
      - Seconds that the image command may take. Then it gets TERM, 10 seconds later KILL, with everything that it
        started.
    type: int
    default: 1200
  success:
    description: What makes an image command a success.
    type: str
    choices:
      marker_and_exit_code: The last line of its stdout contains C(IMAGE_URL_DONE), and it ends with exit code 0.
      marker: The last line of its stdout contains C(IMAGE_URL_DONE), as in CAPH.
    default: marker_and_exit_code
  poll:
    description: Longest time in seconds between two looks at the command. Its end is noticed at once.
    type: float
    default: 2.0
  log_dir:
    description:
      - Directory on the controller for the logs. Those of a machine lie in the sub-directory of its name, and hold
        what the last image command printed on stdout, on stderr, and both together with the seconds since its
        start.
      - The default is C(kubenode-provision/logs) below E(XDG_STATE_HOME) or C(~/.local/state).
    type: path
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.hetzner.rescue_server
  - kubenode.provision.hetzner.installation
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
    details: Everything is checked on the controller, the machine is not contacted.
  diff_mode:
    support: N/A
    details: What an image command will write is not known before it runs.
  idempotent:
    support: full
    details: A command that succeeded is not run again in the same rescue. After a reboot the rescue has forgotten it.
seealso:
  - module: kubenode.provision.image_url_check
  - module: kubenode.provision.machine_boot
  - module: kubenode.provision.hcloud_rescue
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Write an image in the rescue
  kubenode.provision.image_url_command:
    image_url: https://images.example.com/debian.raw.zst#sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    command: image-url-command-raw-disk
    bootstrap_data_file: user-data.yml
  register: written

- name: Use a command of one's own, on two disks, under a longer limit
  kubenode.provision.image_url_command:
    image_url: oci://registry.example.com/images/node:v1
    command: image-url-command-oci
    command_dir: /srv/image-commands
    root_devices: [nvme0n1, nvme1n1]
    timeout: 1200
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
hostname:
  description: Hostname of the system that answered.
  type: str
  returned: when a system answered
  sample: rescue
boot_id:
  description: Boot id of the system that answered.
  type: str
  returned: when a system answered
installation:
  description: Id of the installation that the command in this rescue belongs to.
  type: str
  returned: when the command ended
written:
  description:
    - The disks of the command with what identifies them, what they C(holds) afterwards (UUIDs) and held C(before).
      V(null) when that could not be read.
  type: list
  elements: dict
  returned: when the command ended
attached:
  description: Whether the command had been started before, and was attached to.
  type: bool
  returned: when the command ended
rc:
  description: Exit code of the command, or V(null) when it was killed together with its runner.
  type: int
  returned: when the command ended
seconds:
  description: How long the command ran.
  type: float
  returned: when the command was started
message:
  description: The last C(message) in the C(output.json) of the command.
  type: str
  returned: when the command ended
  sample: wrote 512 MiB
stdout_tail:
  description: The last lines that the command printed on stdout, with control characters shown as escapes.
  type: list
  elements: str
  returned: when the command was started
stderr_tail:
  description:
    - The last lines that the command printed on stderr, with control characters shown as escapes, secrets masked.
  type: list
  elements: str
  returned: when the command was started
interleaved_tail:
  description:
    - The last lines of RV(log_file), each with the seconds since the start, C(out) or C(err), and the text; secrets are
      masked.
  type: list
  elements: str
  returned: when the command was started
  sample: ["12.30 out fetching", "12.41 err no space left on device"]
log_file:
  description:
    - Log on the controller with the lines of stdout and stderr and the seconds since the start. C(.stdout.log) and
      C(.stderr.log) lie beside it.
  type: str
  returned: when the command was started
job:
  description: Digest of program, arguments and bootstrap data.
  type: str
  returned: always
image_url:
  description: The image URL without user info, query and fragment.
  type: str
  returned: always
command_path:
  description: Where the image command was found; C(kubenode.provision/NAME) for one that comes with the collection.
  type: str
  returned: always
boot_state:
  description: Boot state of the machine when the task ended.
  type: str
  returned: always
  sample: RunningImageCommand
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
    options.action_only("image_url_command", options.image_url_command_spec())


if __name__ == "__main__":
    main()
