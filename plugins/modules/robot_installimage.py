#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: robot_installimage
short_description: Installs a dedicated server by Hetzner's installimage in its rescue system
version_added: 1.0.0
description:
  - Waits until the machine's rescue system answers, hands installimage its configuration, watches it, and judges how
    it ended by its exit status, its own words and a marker that only a complete run prints.
  - Use it where an image is a root file system in a tar archive, or where the system is to lie on software RAID, LVM
    or LUKS. For whole disk images use M(kubenode.provision.image_url_command).
  - Everything that installimage would refuse is refused before anything is touched, as far as it can be known on the
    controller. What only the rescue knows (firmware, architecture, sizes of the disks) is looked at there before
    installimage starts. What installimage says in its log C(debug.txt) comes back in the error.
  - The disks must be empty. M(kubenode.provision.machine_disks) finds and empties them, with
    O(kubenode.provision.machine_disks#module:state=ready). After a failure the disks that were begun are emptied again.
  - Volume groups on disks that are not named stay as they are. A layout with LVM makes installimage remove every volume
    group that it is not to keep by name, so it gets their names (C(PRESERVE_VG)); the module refuses where that cannot
    work, as for a physical volume of no volume group, a group that lies on chosen disks, too, or a new group with such
    a name.
  - installimage succeeds also without a boot loader. So the post-install step looks at GRUB's configuration,
    its kernel and initramfs, C(/etc/fstab), and the boot loader that the firmware starts, and fails without them.
  - A task that is run again attaches. An installation that runs is watched, one that has succeeded is not run
    again, one that has failed is started again.
  - The new system gets an installed record in C(/etc/kubenode/installed.json), and keeps the SSH host keys made during
    the installation, which the module returns. The machine is not rebooted, see M(kubenode.provision.machine_boot).
options:
  image:
    description:
      - The image, a tar archive of a root file system with kernel, C(grub), C(mdadm) and whatever else the
        distribution needs to boot. Give exactly one of O(image.name), O(image.path), O(image.url) and O(image.file).
      - installimage reads distribution, version and architecture from the name of the file, such as
        C(Debian-1200-bookworm-amd64-base.tar.zst). Files end with C(.tar), C(.tar.gz), C(.tgz), C(.tar.bz),
        C(.tar.bz2), C(.tbz), C(.tar.xz), C(.txz) or C(.tar.zst).
    type: dict
    required: true
    suboptions:
      name:
        description:
          - Name of one of the provider's images, in C(/root/.oldroot/nfs/images) of the rescue.
          - Together with O(image.url), the name that the downloaded file gets. An image of a registry needs it, unless
            C(#file=) in the URL names the file.
        type: str
      path:
        description: Path of a file that the rescue can read, such as one on a network file system.
        type: str
      url:
        description:
          - HTTP or HTTPS URL. The rescue downloads it into its memory and verifies it before a disk is written.
          - The file is called like the last part of the URL's path, unless O(image.name) says otherwise.
          - C(oci://REGISTRY/NAME@sha256:…) or C(oci://REGISTRY/NAME:TAG) names an image in a registry. The client of
            the shipped C(image-url-command-oci) brings its file into the rescue's memory and proves it by the digests
            of index, manifest and layer. The image is an artifact with one file (of several, C(#file=TITLE) names one)
            or a container image of one layer. The switches C(cosign-key), C(file), C(plain-http) and C(stall) may
            stand behind the C(#), see C(docs/commands.md).
          - User info and query are left out of results, messages and the installed record.
        type: str
      file:
        description: File on the controller. It is uploaded into the memory of the rescue.
        type: str
      digest:
        description:
          - Digest of the file, C(sha256:) and 64 hexadecimal digits. Checked in the rescue before a disk is written.
          - Required with O(image.url), see O(require_digest), but for an image of a registry that is named by digest.
        type: str
  require_digest:
    description: Whether O(image.url) needs O(image.digest), or a digest in the reference to a registry.
    type: bool
    default: true
  oci_registry_auth_token:
    description:
      - C(user:password) or a token for the registry of O(image.url). It reaches the rescue in a file for root alone,
        and there only the client of the registry.
      - If not set, the controller's environment variable E(OCI_REGISTRY_AUTH_TOKEN) is used.
      - The playbooks take it from the variable C(kubenode_registry_token), which may be encrypted by Ansible Vault.
    type: str
  root_devices:
    description:
      - The disks that are written, by WWN or by name below C(/dev/disk/by-id), as M(kubenode.provision.machine_disks)
        returns them. Kernel names such as C(sda) are refused, because they may change from boot to boot.
    type: list
    elements: str
    required: true
  empty:
    description:
      - Disks to empty before, as RV(kubenode.provision.machine_disks#module:to_empty) lists them. They are emptied when
        image, digest, layout and configuration were found right, and only if they hold what they held when that was
        allowed.
    type: list
    elements: dict
    default: []
  swraid:
    description: Whether the disks form a software RAID. V(0) takes exactly one disk.
    type: int
    choices: [0, 1]
    default: 0
  swraid_level:
    description:
      - Level of the software RAID. V(0), V(1) and V(10) need 2 disks, V(5) needs 3, V(6) needs 4. All levels but V(1)
        need a partition for C(/boot).
    type: int
    choices: [0, 1, 5, 6, 10]
    default: 1
  partitions:
    description:
      - The partitions, in order. With RAID, each disk gets them.
      - C(/) needs 1500M, C(/boot) 200M. One of both must be among the first three partitions, outside of LVM.
      - Without partitions, C(/boot) gets 1G and C(/) the rest of the disk, both with ext4, after an ESP of 256M when
        the rescue was booted by UEFI. There is no swap, as Kubernetes wants none.
    type: list
    elements: dict
    default: []
    suboptions:
      mount:
        description: Where it is mounted, V(swap), V(lvm), C(btrfs.1) for a volume of O(subvolumes), or V(none).
        type: str
        required: true
      filesystem:
        description:
          - V(ext2), V(ext3), V(ext4), V(btrfs), V(xfs), V(reiserfs), V(swap), V(esp), V(bios_grub) or V(none).
          - With O(partitions[].mount=lvm) the name of the volume group.
        type: str
        required: true
      size:
        description:
          - A number with C(M), C(G) or C(T) (or C(MiB), C(GiB), C(TiB)), or V(all) for the rest of the disk, in the
            last partition only.
        type: str
        required: true
      crypt:
        description: Whether it is encrypted with LUKS, see O(crypt_password).
        type: bool
        default: false
  logical_volumes:
    description: The logical volumes, in order.
    type: list
    elements: dict
    default: []
    suboptions:
      vg:
        description: Name of a volume group of O(partitions).
        type: str
        required: true
      name:
        description: Name of the logical volume.
        type: str
        required: true
      mount:
        description: Where it is mounted, or V(swap).
        type: str
        required: true
      filesystem:
        description: V(ext2), V(ext3), V(ext4), V(btrfs), V(xfs), V(reiserfs) or V(swap).
        type: str
        required: true
      size:
        description:
          - A number with C(M), C(G) or C(T) (or C(MiB), C(GiB), C(TiB)), or V(all) in the last one of a volume group.
        type: str
        required: true
  subvolumes:
    description: The btrfs subvolumes.
    type: list
    elements: dict
    default: []
    suboptions:
      volume:
        description: A partition whose O(partitions[].mount) is C(btrfs.1) or another number.
        type: str
        required: true
      subvolume:
        description: Name of the subvolume.
        type: str
        required: true
      mount:
        description: Where it is mounted.
        type: str
        required: true
  hostname:
    description:
      - Host name of the new system.
      - The default is O(machine_name).
    type: str
  post_install_script:
    description:
      - Text of a script that runs inside of the new system at the end of the installation. Without C(#!) in its first
        line it is run by bash.
      - When it ends with another exit code than 0, the installation has failed.
    type: str
  bootstrap_data:
    description:
      - cloud-init user data for the new system, put into C(/var/lib/cloud/seed/nocloud-net). The image must have
        cloud-init then. A dictionary is turned into JSON.
      - Mutually exclusive with O(bootstrap_data_file).
    type: raw
  crypt_password:
    description:
      - Passphrase for the partitions with O(partitions[].crypt). At least 8 printable ASCII characters, no spaces,
        quotes and backslashes.
      - The machine asks for it at its console in every boot, and by SSH with O(remote_unlock).
    type: str
  remote_unlock:
    description:
      - Whether the initramfs of the new system gets an SSH server, over which the encrypted partitions are unlocked in
        every boot. The image must be a Debian or Ubuntu with C(cryptsetup-initramfs) and C(dropbear-initramfs).
      - The SSH keys of the rescue are let in, as root on port 22, and can do nothing but hand over a passphrase. The
        address is the rescue's IPv4 address.
      - The host key is made during the installation and returned. It is none of the system's keys, since the initramfs
        is not encrypted.
      - The installation fails when the new initramfs lacks the server, a key, or what opens the partitions.
    type: bool
    default: false
  autosetup:
    description:
      - More keys of installimage's configuration, such as C(IPV4_ONLY), C(GOVERNOR) or C(SSHKEYS_URL). Keys that other
        options set are refused, and so are those that would keep what is on the disks.
      - C(BOOTLOADER) takes C(grub); C(GOVERNOR) takes C(powersave), C(performance) or C(ondemand); C(FORCE_GPT) takes
        V(true), C(1), C(2) or V(false); C(FORCE_SIGN), C(RAID_ASSUME_CLEAN) and C(ALLOW_USB_DRIVES) take V(true) or
        V(false); C(IPV4_ONLY), C(USE_KERNEL_MODE_SETTING) and C(TAKE_OVER_RESCUE_SYSTEM_SSH_PUBLIC_KEYS) take V(true)
        or V(false), too; C(RAID_LAYOUT) takes a layout of mdadm, and C(SSHKEYS_URL) a URL or a path. Each is written
        in the word that installimage reads, whatever the case of letters.
      - Other keys are written as they are, unless installimage would take them for one that it knows.
    type: dict
    default: {}
  network_config:
    description:
      - Where the new system has its network from.
      - >-
        V(rescue) - the addresses, gateways and name servers of the rescue, as installimage does it. What it writes is
        kept where the image has a program that reads it. Otherwise a file is written for systemd-networkd or
        NetworkManager, whichever is switched on. In both cases cloud-init does not configure the network. Other servers
        are reached through the gateway, which is the only way between dedicated servers. Nothing is written where the
        image or the post-install script has a network configuration for cloud-init, or when the rescue has a private
        address.
      - V(image) - what installimage writes and what the image and cloud-init do by themselves.
    type: str
    choices: [rescue, image]
    default: rescue
  uefi:
    description: How the rescue was booted, on which it depends whether there must be an ESP.
    type: str
    choices:
      auto: Whatever the rescue says.
      'true': By UEFI. Refused when it was not. The layout is checked before the machine is contacted.
      'false': In legacy mode. Refused when it was not.
    default: auto
  command:
    description: Path of installimage in the rescue.
    type: str
    default: /root/.oldroot/nfs/install/installimage
  timeout:
    description:
      - Seconds that download and installation may take. Then installimage is killed with everything that it started,
        and the disks are emptied again.
    type: int
    default: 1800
  poll:
    description: Longest time in seconds between two looks at the installation. Its end is noticed at once.
    type: float
    default: 2.0
  log_dir:
    description:
      - Directory on the controller for the logs. Those of a machine lie in the sub-directory of its name. Passphrase
        and credentials of URLs are masked in them.
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
    support: full
    details: Shows the configuration for installimage with the passphrase masked and the disks by their stable names.
  idempotent:
    support: full
    details:
      - An installation that succeeded is not run again in the same rescue. After a reboot the rescue has forgotten it.
seealso:
  - module: kubenode.provision.robot_rescue
  - module: kubenode.provision.machine_disks
  - module: kubenode.provision.image_url_command
  - module: kubenode.provision.machine_boot
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Find and empty the disks
  kubenode.provision.machine_disks:
    state: ready
    device_strings: by-id
    root_device_hints:
      raid:
        wwn: [eui.0025385b71b00001, eui.0025385b71b00002]
  register: disks

- name: Install the provider's Debian on a mirror with LVM
  kubenode.provision.robot_installimage:
    image:
      name: Debian-1200-bookworm-amd64-base.tar.zst
    root_devices: "{{ disks.root_devices }}"
    swraid: 1
    swraid_level: 1
    partitions:
      - {mount: /boot/efi, filesystem: esp, size: 256M}
      - {mount: /boot, filesystem: ext4, size: 1G}
      - {mount: lvm, filesystem: vg0, size: all}
    logical_volumes:
      - {vg: vg0, name: root, mount: /, filesystem: ext4, size: 40G}
      - {vg: vg0, name: containers, mount: /var/lib/containerd, filesystem: xfs, size: all}
    bootstrap_data_file: user-data.yml
  register: installed

- name: Boot it, and accept no other host keys than its own
  kubenode.provision.machine_boot:
    previous_boot_id: "{{ installed.boot_id }}"
    host_keys: "{{ installed.host_keys }}"

- name: Install an image of one's own that a web server offers
  kubenode.provision.robot_installimage:
    image:
      url: https://images.example.com/Debian-1200-bookworm-amd64-node.tar.zst
      digest: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    root_devices: [wwn-0x5002538d40aa0001]
    post_install_script: |
      set -e
      systemctl enable --now kubelet
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
  description: Id of the installation that the installation in this rescue belongs to.
  type: str
  returned: when the installation ended
written:
  description:
    - The disks of the installation with what identifies them, what they C(holds) afterwards (UUIDs) and held
      C(before). V(null) when that could not be read.
  type: list
  elements: dict
  returned: when the installation ended
attached:
  description: Whether the installation had been started before, and was attached to.
  type: bool
  returned: when the installation ended
rc:
  description: Exit code of the program in the rescue, or V(null) when it was killed together with its runner.
  type: int
  returned: when the installation ended
seconds:
  description: How long the installation took.
  type: float
  returned: when the installation was started
message:
  description: The last step that was shown.
  type: str
  returned: when the installation ended
  sample: "installimage 16/16: run the post-install script"
host_keys:
  description: Public SSH host keys of the new system. Empty when O(bootstrap_data) gives it others.
  type: list
  elements: str
  returned: when the installation ended
unlock_host_keys:
  description:
    - Public SSH host keys of the new system's initramfs, for the option
      O(kubenode.provision.machine_boot#module:unlock_host_keys). Empty without O(remote_unlock).
  type: list
  elements: str
  returned: when the installation ended
image:
  description: Path or URL of the image, without credentials.
  type: str
  returned: always
image_digest:
  description: Digest of the image that was installed.
  type: str
  returned: when the installation ended
drives:
  description: The disks, with the C(name) of O(root_devices) and the C(path) that it had in this boot.
  type: list
  elements: dict
  returned: when the installation ended
uefi:
  description: Whether the rescue was booted by UEFI.
  type: bool
  returned: when the installation ended
began:
  description: Whether installimage was started, which takes down what is on the disks before it looks further.
  type: bool
  returned: when the installation ended
blanked:
  description: After a failure, whether the disks could be emptied again, V(null) when nothing had begun.
  type: bool
  returned: when the installation ended
permanent:
  description: Whether the failure stays when the same task is run again.
  type: bool
  returned: when the installation was started
debug_tail:
  description: The last lines of installimage's C(debug.txt), with control characters shown as escapes.
  type: list
  elements: str
  returned: when the installation was started
stdout_tail:
  description: The last lines that were printed, with control characters shown as escapes.
  type: list
  elements: str
  returned: when the installation was started
stderr_tail:
  description:
    - The last lines that the installation printed on stderr, with control characters shown as escapes, secrets masked.
  type: list
  elements: str
  returned: when the installation was started
interleaved_tail:
  description:
    - The last lines of RV(log_file), each with the seconds since the start, C(out) or C(err), and the text; secrets are
      masked.
  type: list
  elements: str
  returned: when the installation was started
  sample: ["12.30 out fetching", "12.41 err no space left on device"]
log_file:
  description:
    - Log on the controller with the lines of stdout and stderr and the seconds since the start. C(.debug.log) with
      C(debug.txt), C(.post-install.log) with the output of the post-install script, C(.stdout.log) and C(.stderr.log)
      lie beside it.
  type: str
  returned: when the installation was started
job:
  description: Digest of everything that is installed, and how.
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
    options.action_only("robot_installimage", options.robot_installimage_spec())


if __name__ == "__main__":
    main()
