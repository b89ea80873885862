#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_disks
short_description: Finds the disks to write on a machine in its rescue, and guards what they hold
version_added: 1.0.0
description:
  - Lists every disk of a machine in its rescue system with size, WWN, serial number, links, health and what it holds,
    down to the systems on its file systems. Looking changes no byte on a disk.
  - Finds the disks that O(root_device_hints) mean, by what stays the same from boot to boot. The kernel's names, such
    as C(sda), may mean another disk after the next boot.
  - With O(state=ready), makes sure that these disks are empty. A disk that holds anything is emptied only when O(wipe)
    names exactly that disk, when it holds what was installed for this machine and O(reinstall) is true, or when a run
    of the last day that did not come to its end had claimed the same disks in O(claim_file). Otherwise nothing is
    changed, and the error says what the disk holds.
  - A disk that shares RAID, a volume group or a file system with others is emptied only together with them.
options:
  root_device_hints:
    description:
      - Which disks are meant. Exactly one of O(root_device_hints.wwn), O(root_device_hints.serial),
        O(root_device_hints.by_id), O(root_device_hints.model), O(root_device_hints.min_size),
        O(root_device_hints.smallest), O(root_device_hints.raid) and O(root_device_hints.query). The others narrow the
        choice.
      - They must lead to exactly one disk (O(root_device_hints.raid) and O(root_device_hints.query) may lead to
        several). If not, the error lists the candidates.
      - Disks that are removable, read-only or without size are never chosen.
      - Required with O(state=ready).
    type: dict
    suboptions:
      wwn:
        description: The WWN of the disk, with or without C(0x), C(eui.) and the like, in upper or lower case.
        type: str
      serial:
        description: The serial number of the disk.
        type: str
      by_id:
        description: The name of the disk below C(/dev/disk/by-id).
        type: str
      model:
        description: The model of the disk, as a whole. Case does not count, and C(_) is a space.
        type: str
      min_size:
        description: The least size, such as V(480G) (decimal) or V(447GiB) (binary).
        type: str
      smallest:
        description: V(true) means the smallest disk. Two of the same size are an error.
        type: bool
      raid:
        description: Several disks.
        type: dict
        suboptions:
          wwn:
            description: The WWNs of at least two disks.
            type: list
            elements: str
            required: true
      query:
        description:
          - A JMESPath query over the list of candidates in RV(disks), which gives a disk or a list of disks.
          - Needs the Python package C(jmespath) on the controller.
        type: str
      rotational:
        description: Only disks that turn (V(true)) or do not (V(false)).
        type: bool
      kind:
        description: Only disks of this kind.
        type: str
        choices: [nvme, sata, scsi, virtio]
  wipe:
    description:
      - Disks that may be emptied with any content. Each entry names exactly one disk by its WWN, its serial number
        or its name below C(/dev/disk/by-id).
      - A disk that is named and not chosen by O(root_device_hints) is emptied too.
      - An entry counts once. It does nothing for an installation of this collection that it allowed; a dictionary of
        entries and installations (at least the first eight digits of their ids) says which one goes.
    type: raw
    default: []
  state:
    description:
      - V(facts) reads and changes nothing.
      - V(ready) makes sure that the chosen disks hold nothing.
      - V(wiped) makes sure that the disks which O(wipe) names hold nothing, and touches no other.
        O(root_device_hints) are not asked for. Nothing is claimed, since nothing will be written.
    type: str
    choices: [facts, ready, wiped]
    default: facts
  empty:
    description:
      - With O(state=ready), when the disks that may go are emptied. V(later) leaves it to the program that writes them,
        which gets RV(to_empty) and empties them after all its checks.
    type: str
    choices: [now, later]
    default: now
  device_strings:
    description:
      - How RV(root_devices) names the disks. V(short) is the kernel's name in this boot, V(wwn) the WWN, V(by-id) a
        name below C(/dev/disk/by-id).
    type: str
    choices: [short, wwn, by-id]
    default: short
  health:
    description:
      - What to do with O(state=ready) about a chosen disk that says of itself that it is failing (SMART). V(check)
        refuses it.
      - V(speed) refuses besides a chosen disk that is read at less than 20000 KiB/s (40000 when it does not turn), or
        not at all. C(fio) reads it for three seconds, twice when it was too slow, and writes nothing. Without C(fio)
        there is a warning.
    type: str
    choices: [check, speed, ignore]
    default: check
  reinstall:
    description:
      - Whether the machine is to be installed again. The installed record of this machine on a disk
        (C(/etc/kubenode/installed.json)) then counts like an entry of O(wipe) for this disk.
      - V(true), or a list of names or a dictionary of names and installations as for
        M(kubenode.provision.robot_rescue).
    type: raw
    default: false
  claim_file:
    description:
      - File on the controller that remembers, for a day, which disks this machine's installation has begun to write.
        So O(wipe) need not name them when the installation is run again after an interruption.
      - In the file of an open intent, as the playbooks have it, the program that is started notes that it has begun.
      - M(kubenode.provision.machine_boot) removes it when the new system has proven itself.
      - The default is C(kubenode-provision/claims/NAME.json) below E(XDG_STATE_HOME) or C(~/.local/state).
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
    details: The machine is contacted and its disks are looked at. Nothing is erased or claimed.
  diff_mode:
    support: full
    details: What each disk that would be or was emptied held.
  idempotent:
    support: full
notes:
  - 'On the command line: C(ansible MACHINE -u root -m kubenode.provision.machine_disks) shows the disks of a machine in
    its rescue.'
  - Uses C(lsblk), C(blkid) and C(wipefs) on the machine, and, when they are there, C(smartctl), C(nvme), C(mdadm),
    C(lvm), C(debugfs), C(cryptsetup) and C(dmsetup).
seealso:
  - module: kubenode.provision.robot_rescue
  - module: kubenode.provision.image_url_command
  - module: kubenode.provision.robot_installimage
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: List the disks, in order to choose root-device hints
  kubenode.provision.machine_disks:
  register: found

- name: Show them as a table
  ansible.builtin.debug:
    var: found.table

- name: Choose one disk; fail if it holds anything
  kubenode.provision.machine_disks:
    state: ready
    root_device_hints:
      wwn: eui.0025385b71b00001
  register: chosen

- name: Choose two disks for a RAID, and empty the one that is known to hold an old system
  kubenode.provision.machine_disks:
    state: ready
    root_device_hints:
      raid:
        wwn: [eui.0025385b71b00001, eui.0025385b71b00002]
    wipe: [eui.0025385b71b00001]
    device_strings: by-id

- name: Empty one disk of a machine that is given back
  kubenode.provision.machine_disks:
    state: wiped
    wipe: [eui.0025385b71b00001]

- name: Choose the smallest disk of more than 400 GB
  kubenode.provision.machine_disks:
    root_device_hints:
      query: "min_by([?size > `400000000000`], &size)"
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
disks:
  description: Facts of every disk, in the order of their names.
  type: list
  elements: dict
  returned: when the rescue answered
  contains:
    name:
      description: The kernel's name in this boot.
      type: str
      sample: nvme0n1
    path:
      description: Its device node.
      type: str
      sample: /dev/nvme0n1
    size:
      description: Size in bytes.
      type: int
    wwn:
      description: World Wide Name, if it has one.
      type: str
      sample: eui.0025385b71b00001
    serial:
      description: Serial number, if it has one.
      type: str
    model:
      description: Model.
      type: str
    by_id:
      description: Its names below C(/dev/disk/by-id).
      type: list
      elements: str
    by_path:
      description: Its name below C(/dev/disk/by-path).
      type: str
    kind:
      description: V(nvme), V(sata), V(scsi), V(virtio) or V(usb).
      type: str
    rotational:
      description: Whether it turns.
      type: bool
    read_only:
      description: Whether it is read-only.
      type: bool
    removable:
      description: Whether it is removable, as USB sticks and virtual media of a remote console are.
      type: bool
    health:
      description: RV(ignore:status) (V(passed), V(failed) or V(unknown)) and RV(ignore:detail).
      type: dict
    holds:
      description:
        - What it holds. Empty for an empty disk, which is one on which C(blkid) and C(wipefs) know nothing, that is not
          in use, whose first and last MiB hold one byte repeated, and on which nothing known lies where partitions
          begin (each of the first 64 MiB). A disk or partition that cannot be read is not empty.
      type: list
      elements: dict
      contains:
        kind:
          description:
            - V(table), V(filesystem), V(raid), V(lvm), V(crypt), V(swap), V(system) (a file system with an operating
              system) or V(unknown).
          type: str
        device:
          description: The device on which it was found.
          type: str
          sample: nvme0n1p2
        type:
          description: Type in the words of C(blkid).
          type: str
          sample: ext4
        label:
          description: Label.
          type: str
        uuid:
          description: UUID.
          type: str
        detail:
          description: What else is to say.
          type: str
        disks:
          description: The names of all disks that it spans.
          type: list
          elements: str
        mounts:
          description: Where it is mounted in the rescue.
          type: list
          elements: str
        in_use:
          description: Whether it is mounted or used as swap in the rescue.
          type: bool
        system:
          description: Name of the operating system.
          type: str
          returned: when RV(ignore:kind) is V(system)
        installed:
          description: The installed record that lies there.
          type: dict
          returned: when there is one
    content_id:
      description: Digest of the kinds of content, in order to notice that they have changed.
      type: str
table:
  description: The disks in a table for people, a line each.
  type: list
  elements: str
  returned: when the rescue answered
hints:
  description:
    - For each disk that may be chosen a line to copy into the inventory, which means this disk and no other one.
    - Then one for disks of equal size and kind, for an array.
  type: list
  elements: str
  returned: when the rescue answered
  sample: ['kubenode_root_device_hints: {serial: S64DNE0R400001}  # nvme0n1, 512 GB nvme']
root_devices:
  description: The chosen disks as O(device_strings) asks for, ready for C(root_devices) of other modules.
  type: list
  elements: str
  returned: when the rescue answered
  sample: [nvme0n1]
root_wwns:
  description: The WWNs of the chosen disks; empty text for a disk without one.
  type: list
  elements: str
  returned: when the rescue answered
root_by_id:
  description: A name below C(/dev/disk/by-id) for each chosen disk; empty text for a disk without one.
  type: list
  elements: str
  returned: when the rescue answered
wiped:
  description: The stable names of the disks that were emptied, or would be in check mode.
  type: list
  elements: str
  returned: when the rescue answered
to_empty:
  description:
    - With O(empty=later), the disks that are still to be emptied, for
      O(kubenode.provision.robot_installimage#module:empty) or O(kubenode.provision.image_url_command#module:empty).
  type: list
  elements: dict
  returned: when the rescue answered
found_empty:
  description:
    - With O(state=ready), the chosen disks that held nothing, for
      O(kubenode.provision.image_url_command#module:still_empty).
  type: list
  elements: dict
  returned: when the rescue answered
in_progress:
  description:
    - Whether the claimed disks were left as they are, because a program that was started in this rescue is writing
      them, or has done so with success.
  type: bool
  returned: when the rescue answered
diff:
  description: For each disk that was or would be emptied, what it holds before and after.
  type: list
  elements: dict
  returned: when a disk was or would be emptied
consent:
  description: What allows the disks to be written; V(empty), V(wipe), V(reinstall), joined by C(+).
  type: str
  returned: when O(state=ready) and the disks are ready
permanent:
  description: Whether it is an error that no further run can repair, such as a disk that is not there or is failing.
  type: bool
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
    options.action_only("machine_disks", options.machine_disks_spec())


if __name__ == "__main__":
    main()
