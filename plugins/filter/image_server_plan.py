# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: image_server_plan
short_description: Plans how a machine becomes a server of live images
version_added: 1.0.0
positional: purpose
description:
  - Checks the variables of the role P(kubenode.provision.image_server#role) and turns them, with what was seen on the
    machine, into options and settings for the modules of this collection. Nothing is read or written.
options:
  _input:
    description:
      - For V(inputs), the variables of the role without C(image_server_). Otherwise what V(inputs) returned.
    type: dictionary
    required: true
  purpose:
    description:
      - What to return.
    type: string
    choices:
      inputs: The variables, checked, with their defaults. One error names all that is wrong.
      queries: Options for M(kubenode.provision.node_info).
      refusals: Why this machine cannot become an image server, a list. Needs O(node).
      missing: Debian packages that are to be installed. Needs O(node).
      url: Where machines find the images. Needs O(node).
      artifacts: The bases to fetch, for M(kubenode.provision.node_artifacts).
      settings: Settings for M(kubenode.provision.node_settings), the program itself among them. Needs O(node).
      secrets: Secrets that belong to these settings. Needs O(node).
    required: true
  node:
    description:
      - RV(kubenode.provision.node_info#module:node).
    type: dictionary
  record:
    description:
      - What an earlier run wrote to C(/etc/kubenode/image-server.json).
    type: dictionary
    default: {}
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: See what the role would take
  ansible.builtin.debug:
    msg: "{{ {'bind_addr': ':8080'} | kubenode.provision.image_server_plan('inputs') }}"
"""

RETURN = r"""
_value:
  description: What O(purpose) says.
  type: raw
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.plugin_utils.plain import plain


def image_server_plan(
    inputs: Mapping[str, Any],
    purpose: str,
    node: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
) -> Any:
    """See DOCUMENTATION."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import role_inputs as inputs_
    from ansible_collections.kubenode.provision.plugins.plugin_utils.image_server import role_plan as plan

    #: purpose → whether it needs what was seen on the machine, and what does it
    purposes: dict[str, tuple[bool, Callable[[Any, Any, Any], Any]]] = {
        "inputs": (False, lambda inputs, node, record: inputs_.checked(inputs)),
        "queries": (False, lambda inputs, node, record: plan.queries()),
        "refusals": (True, lambda inputs, node, record: plan.refusals(inputs, node)),
        "missing": (True, lambda inputs, node, record: plan.missing(inputs, node)),
        "url": (True, lambda inputs, node, record: plan.url(inputs, node)),
        "artifacts": (False, lambda inputs, node, record: plan.artifacts(inputs)),
        "settings": (True, plan.settings),
        "secrets": (True, lambda inputs, node, record: plan.secrets(inputs, node)),
    }
    if purpose not in purposes:
        raise AnsibleFilterError(f"image_server_plan: {purpose!r} must be one of {', '.join(purposes)}")
    needs_node, function = purposes[purpose]
    if not isinstance(inputs, Mapping) or (needs_node and not isinstance(node, Mapping)):
        raise AnsibleFilterError(f"image_server_plan: {purpose} needs a dictionary{' and node' if needs_node else ''}")
    try:
        return function(plain(inputs), plain(node), plain(record) or {})
    except inputs_.InvalidInput as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {"image_server_plan": image_server_plan}
