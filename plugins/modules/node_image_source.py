#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_source
short_description: Makes image files of the controller readable for machines in their rescue
version_added: 1.0.0
description:
  - Proves each file by its digest, converts qcow2 to a compressed raw image, and serves all of them on loopback until
    this run of Ansible ends, also by an error.
  - A machine reaches them through its own SSH connection, with RV(ssh_args) among C(ansible_ssh_extra_args), which
    needs a shared connection (C(ControlPersist), the default). Nothing of an image has to fit into the rescue's memory.
options:
  images:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of this file in the results.
        type: str
        required: true
      path:
        description:
          - The file on the controller - an archive or a raw image, also compressed by gzip, bzip2, xz or zstd, or a
            qcow2 image that needs no other file. qcow2 needs the program C(qemu-img) on the controller.
        type: path
        required: true
      sha256:
        description: SHA-256 of the file, in hexadecimal digits. Leave it out for a file that this run made itself.
        type: str
      kind:
        description: What is in the file.
        type: str
        choices:
          disk: A raw or qcow2 image, which C(image-url-command-raw-disk) writes as it is.
          root: A tar archive of a root file system for C(image-url-command-rootfs-tar).
        default: disk
  cache_dir:
    description: Directory on the controller for images that were converted.
    type: path
    required: true
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
attributes:
  check_mode:
    support: full
    details: Files are proven, nothing is converted or served.
  diff_mode:
    support: N/A
    details: There is nothing to compare.
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.image_url_command
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Let machines read an image that lies here
  kubenode.provision.node_image_source:
    images:
      - name: appliance
        path: images/appliance.qcow2
        sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    cache_dir: kubenode/cache
  register: source
"""

RETURN = r"""
images:
  description: One result for each image, in the order of O(images). Empty in check mode.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the image.
      type: str
      sample: appliance
    image_url:
      description: The image URL for the image command, with the digest of what is served.
      type: str
      sample: http://127.0.0.1:40001/8Zc1/0.img#sha256=…&adapt=no
    converted:
      description: Whether it was qcow2.
      type: bool
ssh_args:
  description: Arguments of C(ssh) with which the URLs can be read on a machine.
  type: str
  returned: success
  sample: -R 127.0.0.1:40001:127.0.0.1:40001
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("node_image_source", options.node_image_source_spec())


if __name__ == "__main__":
    main()
