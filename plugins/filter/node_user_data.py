# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_user_data
short_description: Renders what a machine needs to become a node at its first boot
version_added: 1.0.0
positional: format
description:
  - Returns user data for cloud-init or Ignition. At its first boot the machine writes SSH keys, hostname, CA and
    C(cloud-config), fetches the program C(provision), proves its SHA-256, and runs it until it has succeeded.
  - Every input is checked first; one error names everything that is wrong. The variables of the roles that will run
    are checked by the roles' own rules, as far as these need no machine.
  - The result holds the bootstrap token and every other secret of the inputs. Every user who may read the user data
    of the machine can read them; so can its pods where the provider has a metadata service. Use tokens of a short life.
options:
  _input:
    description:
      - The inputs, a dictionary. Keys that are missing, V(none) or empty mean their default.
    type: dictionary
    required: true
    suboptions:
      provision_source:
        description: Where the program is, as C(URL#sha256=DIGEST). C(make provision) builds it and prints the digest.
        type: str
        required: true
      phase:
        description: What is done at the first boot.
        type: str
        choices: [all, base, join]
        default: all
      prebake:
        description: Make an image of the machine instead of a node. Means O(_input.phase=base).
        type: bool
        default: false
      hostname:
        description: The machine's name, and the node's unless C(join_node_name) says otherwise.
        type: str
      ssh_authorized_keys:
        description: Public SSH keys that may log in.
        type: list
        elements: str
        default: []
      ssh_user:
        description: Whose keys they are, with Ignition. With cloud-init it is the image's default user, and root.
        type: str
        default: core
      kubelet_version:
        description: The same as C(base_kubernetes_version).
        type: str
      api_server:
        description: The same as C(join_api_server). Required, here or in O(_input.vars), unless only base is done.
        type: str
      ca_cert:
        description: The cluster's CA in PEM, written to C(/etc/kubenode/provision/ca.crt).
        type: str
      token:
        description:
          - The bootstrap token. Required, here or in O(_input.vars), unless only base is done. Its file is removed when
            the machine has joined.
        type: str
      cloud_provider:
        description: The same as C(join_cloud_provider).
        type: str
        choices: ['', external]
      cloud_config:
        description: Content of C(/etc/kubernetes/cloud-config), for cloud components on the node.
        type: str
      vars:
        description:
          - Further variables of the roles P(kubenode.provision.base#role) and P(kubenode.provision.join#role).
            They are values, not templates.
          - C(base_http_proxy), C(base_https_proxy) and C(base_no_proxy) hold for fetching the program, too.
        type: dict
        default: {}
      source_ca:
        description: CA certificates in PEM that prove the server of O(_input.provision_source).
        type: str
      python_source:
        description:
          - A standalone Python 3.11 to 3.14 as C(URL#sha256=DIGEST), a C(.tar.gz) with one folder that has
            C(bin/python3) in it. It goes to C(/opt/kubenode/python). Needed where there is no
            package manager (Flatcar).
        type: str
      attempts:
        description: How often fetching and running are tried, at most, before the machine gives up.
        type: int
        default: 10
      pause:
        description: Seconds between the first two attempts. It doubles each time, up to five minutes.
        type: int
        default: 10
  format:
    description: Who reads the user data.
    type: str
    choices: [cloud-init, ignition]
    default: cloud-init
  limit:
    description:
      - Bytes the user data may have. The default is the limit of Hetzner Cloud; V(0) means no limit.
    type: int
    default: 32768
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: User data of a machine that joins by itself
  ansible.builtin.set_fact:
    kubenode_bootstrap_data: "{{ inputs | kubenode.provision.node_user_data }}"
  vars:
    inputs:
      provision_source: https://files.example.com/provision#sha256={{ provision_sha256 }}
      hostname: "{{ inventory_hostname }}"
      ssh_authorized_keys: ["{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"]
      kubelet_version: 1.36.4
      api_server: https://api.example.com:6443
      ca_cert: "{{ lookup('ansible.builtin.file', 'ca.crt') }}"
      token: "{{ bootstrap_token }}"
  no_log: true
"""

RETURN = r"""
_value:
  description: The user data.
  type: string
"""

from typing import Any

from ansible.errors import AnsibleFilterError


def node_user_data(inputs: Any, format: str = "cloud-init", limit: Any = None) -> str:
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.module_utils._common.text import whole_number
    from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan.user_data import (
        HETZNER_LIMIT,
        InputError,
        user_data,
    )
    from ansible_collections.kubenode.provision.plugins.plugin_utils.role_specs import plain

    most = HETZNER_LIMIT if limit is None else whole_number(str(limit))
    if most is None:
        raise AnsibleFilterError(f"node_user_data: limit is {limit!r}; give a number of bytes, 0 for no limit")
    try:
        return user_data(plain(inputs), format, most)
    except InputError as error:
        raise AnsibleFilterError(f"node_user_data: {error}") from None


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"node_user_data": node_user_data}
