#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_debian
short_description: Makes a root file system of Debian packages, as a tar archive
version_added: 1.0.0
description:
  - Has C(mmdebstrap) make the base of a node image - a Debian that boots on servers by BIOS and UEFI, with a kernel for
    real hardware, boot loaders, cloud-init, an SSH server, Python, and the tools for RAID, LVM, btrfs and xfs.
  - C(image-url-command-rootfs-tar) installs such an archive, and C(installimage) when its name says what it is.
  - The archive holds no host keys, no machine id, no host name but C(localhost), and no settings of the host that made
    it. Its network is configured by cloud-init for systemd-networkd.
options:
  path:
    description:
      - The archive. Its suffix chooses the compression - V(.tar.zst), V(.tar.xz), V(.tar.gz) or none, V(.tar).
      - It appears under this name when it is whole. A record of what it was made of is kept beside it (C(.json)).
    type: path
    required: true
  suite:
    description: The release, by its code name.
    type: str
    required: true
  architecture:
    description: Debian's name of the architecture. One that the host cannot execute needs C(qemu-user-static).
    type: str
    choices: [amd64, arm64]
    default: amd64
  mirrors:
    description:
      - Where packages come from - URLs, or lines as in C(sources.list). They become the sources of the system, too.
      - By default Debian's own mirrors, security updates among them.
    type: list
    elements: str
    default: []
  include:
    description: Further packages.
    type: list
    elements: str
    default: []
  kernel:
    description:
      - The package of the kernel. By default C(linux-image-amd64) or C(linux-image-arm64); kernels for clouds have no
        drivers for SATA and NVMe.
    type: str
  keyring:
    description:
      - File or folder with the keys that the release must be signed by, on the host that makes the archive.
      - By default those that its own apt knows, and Debian's.
    type: path
  apt_options:
    description: Settings of apt while the archive is made, such as a proxy. Each is one line of C(apt.conf).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that it may take.
    type: int
    default: 3600
  force:
    description: Whether to make it again, with the packages of today, although there is one that was made of the same.
    type: bool
    default: false
  progress:
    description:
      - V(none) shows nothing of the file while it is made. By default, or with any other word, a line each 15
        seconds has the step and the bytes that were written, when the task runs on the controller.
    type: str
    choices: [fleet, lines, none]
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: A new file is made each time.
  idempotent:
    support: full
    details: >-
      An archive that was made of the same options and is undamaged is left alone; newer packages are no reason to make
      another.
notes:
  - Needs C(mmdebstrap) on the host it runs on, but no root where user namespaces are allowed; on Ubuntu also
    C(debian-archive-keyring).
seealso:
  - module: kubenode.provision.node_image_archive
  - module: kubenode.provision.node_image_source
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Make the base of dedicated servers
  kubenode.provision.node_image_debian:
    path: images/Debian-1300-trixie-amd64-metal.tar.zst
    suite: trixie
    include: [nvme-cli, smartmontools]
  delegate_to: localhost

- name: Make one as it was on a day
  kubenode.provision.node_image_debian:
    path: images/Debian-1200-bookworm-amd64-metal.tar.zst
    suite: bookworm
    mirrors: ["http://mirror.example.com/debian/20261101"]
    apt_options: ['Acquire::Check-Valid-Until "false";']
"""

RETURN = r"""
path:
  description: The archive.
  type: str
  returned: success
  sample: images/Debian-1300-trixie-amd64-metal.tar.zst
sha256:
  description: SHA-256 of the archive. In check mode only when it is there already.
  type: str
  returned: when there is an archive
  sample: 4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865
size:
  description: Bytes of the archive.
  type: int
  returned: when there is an archive
  sample: 212475648
packages:
  description: The packages that were asked for by name; what they depend on comes with them.
  type: list
  elements: str
  returned: success
  sample: [ca-certificates, cloud-init]
seconds:
  description: How long it took.
  type: float
  returned: when an archive was made
  sample: 81.5
"""

import signal

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.kubenode.provision.plugins.module_utils._common.mounts import private_mounts
from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive import debian_root
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.archive.tree import NotPacked
from ansible_collections.kubenode.provision.plugins.module_utils._rescue.disks.disk_tools import Tools


def main() -> None:
    """Make the archive, or say why not."""
    module = AnsibleModule(options.node_image_debian_spec(), supports_check_mode=True)
    # The action plugin starts the module in a thread that blocks signals, and a child inherits what is blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    # What mmdebstrap mounts would be copied into each container of this host, and one of them may hold it then.
    private_mounts()
    try:
        result = debian_root.run(module.params, Tools(module.run_command), module.check_mode)
    except NotPacked as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
