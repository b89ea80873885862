#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_boot
short_description: Reboots a machine and proves which system answers
version_added: 1.0.0
description:
  - Sends a reboot over SSH, waits until another boot answers, and proves that it is the system that was expected.
  - A system other than the rescue is proven by another boot id, the id of its installation or the disk that it runs
    from (see O(proof)), the hostname and the SSH host keys when they are given, and a cloud-init that has ended without
    errors when the system has one.
  - The machine needs no Python, only a POSIX shell.
  - The installed record C(/etc/kubenode/installed.json) is completed after the proof, when the root file system can
    be written.
options:
  expect:
    description: The system that is to answer.
    type: str
    choices:
      os: Any system but the rescue.
      rescue: The rescue, which something else has armed.
    default: os
  reboot:
    description:
      - Whether to reboot. A machine that runs another boot than O(previous_boot_id) has been rebooted already and
        is left alone.
    type: bool
    default: true
  previous_boot_id:
    description:
      - Boot id of the system that is to reboot, such as the one that M(kubenode.provision.image_url_command)
        returned.
      - By default, the system that answers is asked for its boot id and rebooted.
    type: str
  hostname:
    description:
      - Hostname of the new system, short or qualified. Not checked when it is not set, and not for a system that
        O(adopt) leaves as it is.
    type: str
  check_hostname:
    description: Whether O(hostname) is part of the proof. V(false) is for images that choose their own name.
    type: bool
    default: true
  host_keys:
    description:
      - Public SSH host keys of the new system, as lines of its C(.pub) files. No system with another key is used.
      - Without them, the first key that the new system shows is pinned.
    type: list
    elements: str
  unlock_password:
    description:
      - Passphrase of an encrypted system that waits in its initramfs, as
        O(kubenode.provision.robot_installimage#module:remote_unlock) makes it. It goes to the standard input of an SSH
        connection as root, never to one whose host key is not in O(unlock_host_keys).
      - A wrong one ends the task at once.
    type: str
  unlock_host_keys:
    description:
      - Public SSH host keys of that initramfs, as M(kubenode.provision.robot_installimage) returned them.
      - By default those that an earlier task kept in O(known_hosts_dir). Without any, nothing is unlocked.
    type: list
    elements: str
  unlock_port:
    description: Port of the SSH server in the initramfs, where it is another one than the connection's.
    type: int
  unlock_private_key:
    description:
      - File of the SSH private key on the controller that may unlock, where it is another one than the connection's.
    type: path
  secrets:
    description:
      - What must not be seen in messages and results, which repeat what cloud-init says. Of a URL, its login and query.
    type: list
    elements: str
    default: []
  bootstrap_data:
    description:
      - Bootstrap data of the machine, whose longer lines must not be seen either.
      - Mutually exclusive with O(bootstrap_data_file).
    type: raw
  bootstrap_data_file:
    description: File on the controller that holds the bootstrap data.
    type: path
  os_user:
    description:
      - User of the new system, where it is not the one that the rescue is reached with. The record of the installation
        is written by C(sudo) then, as far as that needs no password.
    type: str
  os_port:
    description: Port of the new system's SSH server, where it is another one than the rescue's.
    type: int
  os_private_key:
    description: File of the SSH private key on the controller that opens the new system, where it is another one.
    type: path
  wait_cloud_init:
    description:
      - Whether to wait until cloud-init has ended, and to fail when it ended with errors. Systems without
        cloud-init do not wait.
      - Warnings count as errors, deprecated keys in the bootstrap data do not.
    type: bool
    default: true
  timeout:
    description: Seconds to wait until the system answers.
    type: int
    default: 360
  cloud_init_timeout:
    description: Seconds to wait for the end of cloud-init after that.
    type: int
    default: 600
  image_url:
    description: What was installed, for the installed record. Without user info, query and fragment.
    type: str
  command:
    description: The image command that installed it, for the installed record.
    type: str
  claim_file:
    description:
      - File with which M(kubenode.provision.machine_disks) claimed the disks. It is removed when the new system has
        been proven, so that no later run takes the disks for half-written ones.
    type: path
  intent_file:
    description:
      - File with the intent that M(kubenode.provision.hcloud_rescue) or M(kubenode.provision.robot_rescue) wrote in its
        O(kubenode.provision.hcloud_rescue#module:intents_dir). It is closed when the new system has been proven.
    type: path
  write_record:
    description: Whether to complete the installed record. It needs O(image_url), O(command) or a record that exists.
    type: bool
    default: true
  installation:
    description:
      - Id of the installation, as M(kubenode.provision.image_url_command) returned it. The new system shows it in its
        installed record. A record of another installation is never overwritten.
    type: str
  written:
    description:
      - The disks as the rescue saw them after the image command, as M(kubenode.provision.image_url_command) returned
        them. A system without a record of this installation is judged by the disk that it runs from.
    type: list
    elements: dict
  proof:
    description:
      - The weakest proof that is enough. A stronger one is taken where there is one.
      - The default is V(disk) when O(installation) or O(written) is given, else V(ssh).
    type: str
    choices:
      nonce: The installed record of the new system carries O(installation).
      disk: Or its root file system is on a disk that was written.
      ssh: Or any system but the rescue answers by SSH and lets us in. Nothing is called verified then.
      port: A port of another boot is open, for systems without SSH or without our key. Nothing is called verified.
      none: No system is asked. Nothing is called verified.
  adopt:
    description:
      - Whether to take a system as it is, although it does not show which installation it is of. It is not called
        verified.
    type: bool
    default: false
  machine_name:
    description:
      - Name of the machine.
      - The default is the name of the host in the inventory.
    type: str
  known_hosts_dir:
    description:
      - Directory on the controller for the SSH host keys that the machine showed, the same as for
        M(kubenode.provision.image_url_command). The user's own C(known_hosts) is not changed.
      - The default is a temporary directory of this run.
      - Only used when the connection is P(ansible.builtin.ssh#connection).
    type: path
  boot_state:
    description: Boot state of the machine when the task begins, as the step before returned it.
    type: str
    default: RunningImageCommand
  boot_state_since:
    description:
      - Since when the machine is in O(boot_state), as the step before returned it.
      - The default is the begin of the task.
    type: str
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
  - kubenode.provision.hetzner.variables
attributes:
  check_mode:
    support: full
    details: The machine is not contacted.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: With O(previous_boot_id) a machine is rebooted once. Without it, every run reboots.
seealso:
  - module: kubenode.provision.image_url_command
  - module: ansible.builtin.reboot
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Boot what the image command wrote
  kubenode.provision.machine_boot:
    previous_boot_id: "{{ written.boot_id }}"
    installation: "{{ written.installation }}"
    written: "{{ written.written }}"
    boot_state: "{{ written.boot_state }}"
    boot_state_since: "{{ written.boot_state_since }}"
    image_url: "{{ written.image_url }}"
    command: image-url-command-raw-disk
  register: booted

- name: Ask who answers, without a reboot
  kubenode.provision.machine_boot:
    reboot: false
    hostname: node-1
    host_keys:
      - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILfnpsTyIwD2GVGEQzM7E2cSXaxKs8JmzQ2KQjAOUv1s node-1
"""

RETURN = r"""
machine_name:
  description: Name of the machine.
  type: str
  returned: always
  sample: node-1
hostname:
  description: Hostname of the system that answered.
  type: str
  returned: when a system answered
  sample: node-1
boot_id:
  description: Boot id of the system that answered.
  type: str
  returned: when a system answered
system:
  description: What is known of the system that answered.
  type: dict
  returned: when a system answered
  contains:
    hostname:
      description: Its hostname.
      type: str
    boot_id:
      description: Its boot id.
      type: str
    previous_boot_id:
      description: The boot id of the system before it, if known.
      type: str
    os:
      description: Its name and release.
      type: str
      sample: Debian GNU/Linux 12 (bookworm)
    kernel:
      description: Release of its kernel.
      type: str
    cloud_init:
      description:
        - RV(ignore:status) of cloud-init (V(done), V(error), V(degraded), V(running), V(disabled) or V(absent)),
          its C(errors) and C(warnings), and its C(datasource).
      type: dict
    installed:
      description: The installed record, with C(machine), C(image_url), C(command), C(installed_at) and C(verified_at),
          and C(installation), its id.
      type: dict
    host_key_fingerprints:
      description: SHA-256 fingerprints of the SSH host keys that were given or that it showed.
      type: list
      elements: str
proof:
  description:
    - What the system showed; V(nonce), V(disk), V(ssh), V(port), V(none), V(adopted), or V(unproven) when that was not
      enough.
  type: str
  returned: when O(expect=os)
verified:
  description: Whether the system was seen to be the installation that was made.
  type: bool
  returned: when O(expect=os)
record_written:
  description: Whether the installed record was written or completed.
  type: bool
  returned: success
boot_state:
  description: Boot state of the machine when the task ended.
  type: str
  returned: always
  sample: OperatingSystemRunning
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
    options.action_only("machine_boot", options.machine_boot_spec())


if __name__ == "__main__":
    main()
