#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_archive
short_description: Makes a node image file of a disk or a root file system
version_added: 1.0.0
description:
  - Packs the root file system of a prebaked machine as a tar archive that C(installimage) and
    C(image-url-command-rootfs-tar) install, or its disk as a raw image that C(image-url-command-raw-disk) writes.
  - Run it in the rescue of the machine, where its disk is not in use, or on a host that has the root file system in a
    folder.
  - The same root file system gives the same bytes - members are sorted, owners are numbers, no time is later than
    O(epoch). Extended attributes (ACLs and capabilities among them), hard links and holes are kept.
  - Left out are what belongs to one disk or one boot (C(/etc/fstab), C(lost+found), the random seed), the contents of
    C(/proc), C(/sys), C(/dev), C(/run), C(/tmp), C(/var/tmp) and of package caches, sockets, and device nodes but the
    whiteouts of container images.
options:
  source:
    description:
      - The disk (V(/dev/sda)), of which the one root file system is mounted read-only, or a folder with a root file
        system.
      - C(/boot), C(/usr), C(/var), C(/opt), C(/home) and C(/srv) are packed too when they are partitions of that disk.
    type: path
    required: true
  kind:
    description: What to make.
    type: str
    choices:
      tarball: A tar archive of the root file system. The disk is not changed.
      raw: >-
        A raw image of the disk. The last partition must be the root file system, an ext4. B(On the disk itself the file
        system is shrunk to its content), and what it does not use becomes zeros in the image; so give this the disk of
        a temporary machine only.
    default: tarball
  path:
    description: The file to make, on the machine. It appears under this name when it is whole.
    type: path
  url:
    description:
      - Where the file is sent by C(PUT) while it is made, in chunks; nothing of it is stored on the machine. The answer
        must have status 201 and the SHA-256 of what arrived. M(kubenode.provision.node_image_sink) serves such URLs.
    type: str
  name:
    description:
      - The name of the file; by default that of O(path). The suffix V(.zst), V(.gz) or V(.xz) chooses the compression.
      - An archive is named by C(installimage)'s rule, C(Debian-1300-trixie-amd64-anything.tar.zst). A name that tells
        another distribution, version or architecture than the root file system is refused.
    type: str
  level:
    description: How hard the compressor tries.
    type: int
    default: 9
  epoch:
    description:
      - Seconds since 1970 that no time in the archive is later than (C(SOURCE_DATE_EPOCH)).
      - By default the time of the newest file below C(/usr) that a package brought.
    type: int
  exclude:
    description: More paths to leave out, with all that is below them.
    type: list
    elements: str
    default: []
  prebaked:
    description:
      - Whether to refuse a root file system that base did not prebake, or that still holds one machine's identity.
    type: bool
    default: true
  arrives_at:
    description:
      - Where on the controller the file comes into being that is sent to O(url), so that its growth can be shown - the
        C(path) that M(kubenode.provision.node_image_sink) returned.
    type: path
  progress:
    description:
      - V(none) shows nothing of the file while it is made. By default, or with any other word, a line each 15
        seconds has the step and the bytes that were written, when O(arrives_at) is given.
    type: str
    choices: [fleet, lines, none]
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
    details: Everything is checked, no file is made and no disk is changed.
  diff_mode:
    support: N/A
    details: A new file is made each time.
  idempotent:
    support: none
    details: The file is made again each time, with the same bytes for the same source.
notes:
  - Needs root. Disks need C(lsblk), C(blkid) and, for ext4, C(dumpe2fs); raw images C(e2fsck), C(resize2fs), C(e2image)
    and C(sfdisk).
seealso:
  - module: kubenode.provision.node_cleanup
  - module: kubenode.provision.node_image_sink
  - module: kubenode.provision.robot_installimage
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Pack the system of a machine that was prebaked, in its rescue
  kubenode.provision.node_image_archive:
    source: /dev/sda
    path: /mnt/Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst

- name: Send the disk of a temporary machine as a raw image
  kubenode.provision.node_image_archive:
    source: /dev/sda
    kind: raw
    name: debian-13-kubernetes-1.36.4.raw.zst
    url: "{{ sink.files[0].url }}"
"""

RETURN = r"""
sha256:
  description: SHA-256 of the file.
  type: str
  returned: when a file was made
  sample: 4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865
size:
  description: Bytes of the file.
  type: int
  returned: when a file was made
  sample: 312475648
image_bytes:
  description: Bytes that a disk must have at least.
  type: int
  returned: when a raw image was made
  sample: 2684354560
members:
  description: Files, folders and links in the archive.
  type: int
  returned: when an archive was made
  sample: 31234
content_bytes:
  description: Bytes of all files, holes not counted.
  type: int
  returned: when an archive was made
  sample: 1312475648
left_out:
  description: How many members were left out for what they are.
  type: dict
  returned: when an archive was made
  sample:
    sockets: 1
system:
  description: Name of the system.
  type: str
  returned: success
  sample: Debian GNU/Linux 13 (trixie)
machine:
  description: Architecture of its programs, as C(uname -m) says it.
  type: str
  returned: success
  sample: x86_64
epoch:
  description: The time that nothing in the archive is later than, in seconds since 1970.
  type: int
  returned: success
  sample: 1763596800
base:
  description: What the role base recorded in C(/etc/kubenode/base.json).
  type: dict
  returned: success
  sample:
    prebaked: true
seconds:
  description: How long it took.
  type: float
  returned: when a file was made
  sample: 41.5
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import pack
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.tree import NotPacked
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_tools import Tools


def main() -> None:
    """Make the file, or say why not."""
    module = AnsibleModule(
        options.node_image_archive_spec(),
        mutually_exclusive=[("path", "url")],
        required_one_of=[("path", "url")],
        supports_check_mode=True,
    )
    try:
        result = pack.run(module.params, Tools(module.run_command), module.check_mode)
    except NotPacked as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
