#!/usr/bin/python
# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_image_sink
short_description: Lets machines send image files to the controller while they make them
version_added: 1.0.0
description:
  - Takes files on loopback until this run of Ansible ends, also by an error. A file appears in O(dest) when it has
    arrived whole; what was cut off is removed.
  - A machine reaches it through its own SSH connection, with RV(ssh_args) among C(ansible_ssh_extra_args), which
    needs a shared connection (C(ControlPersist), the default). So an image may be larger than the memory of a rescue.
options:
  dest:
    description: Folder on the controller. It is made when it is missing.
    type: path
    required: true
  files:
    description:
      - Names of the files that may be sent. Files that are there already are replaced.
      - Without a name, only O(dest) is made and tried.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - kubenode.provision.attributes
  - kubenode.provision.attributes.actiongroup_kubenode
  - kubenode.provision.attributes.flow
attributes:
  check_mode:
    support: full
    details: The folder is checked, nothing is served.
  diff_mode:
    support: N/A
    details: There is nothing to compare.
  idempotent:
    support: full
seealso:
  - module: kubenode.provision.node_image_archive
author: kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Let a machine send an archive
  kubenode.provision.node_image_sink:
    dest: images
    files: [Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst]
  register: sink
"""

RETURN = r"""
files:
  description: One result for each file, in the order of O(files). Empty in check mode.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the file.
      type: str
      sample: Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst
    path:
      description: Where it will lie.
      type: str
      sample: /home/me/images/Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst
    url:
      description: Where it is to be sent by C(PUT).
      type: str
      sample: http://127.0.0.1:40001/8Zc1/Debian-1300-trixie-amd64-kubenode-1.36.4.tar.zst
ssh_args:
  description: Arguments of C(ssh) with which the URLs can be reached on a machine.
  type: str
  returned: success
  sample: -R 127.0.0.1:40001:127.0.0.1:40001
"""

from ansible_collections.kubenode.provision.plugins.module_utils._rescue import options


def main() -> None:
    """Everything happens in the action plugin of the same name."""
    options.action_only("node_image_sink", options.node_image_sink_spec())


if __name__ == "__main__":
    main()
