# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules that speak to a cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Where the kubeconfig is, and which machine a Node must be of."""

    # Every module that reads a kubeconfig.
    KUBECONFIG = r"""
options:
  kubeconfig:
    description: Path of the kubeconfig. Without it, the usual places are searched.
    type: path
  context:
    description: Context of the kubeconfig, its current one when unset.
    type: str

requirements:
  - kubernetes (Python package)
"""

    # A name proves nothing: another machine may have registered the Node.
    OWN_NODE = r"""
options:
  machine_id:
    description:
      - What C(/etc/machine-id) of the machine holds. When given, only a Node that was registered with it is touched.
      - Without it, and without O(provider_id) and O(addresses), the name is proof enough.
    type: str
    default: ''
  provider_id:
    description:
      - For a machine that does not answer, its provider ID, such as V(hcloud://42). A Node with another one is left
        alone.
      - Ignored when O(machine_id) is given.
    type: str
    default: ''
  addresses:
    description:
      - For a machine that does not answer, addresses that only this machine has. A Node without a provider ID is the
        machine's when it has published one of them.
      - Ignored when O(machine_id) is given.
      - With one of these proofs, a Node of the short name may be the machine's, too, where the whole name has none.
    type: list
    elements: str
    default: []
"""

    # What a machine asks of the API server that it joins.
    JOINING = r"""
options:
  api_server:
    description: The address of the API server, such as V(https://192.0.2.1:6443).
    type: str
    required: true
  node_name:
    description: The name of the node.
    type: str
    required: true
"""
