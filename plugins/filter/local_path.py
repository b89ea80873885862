# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: local_path
short_description: Where a path of the controller leads to
version_added: 1.0.0
positional: inventory_dir, search
description:
  - The rule of this collection for every variable that holds a path of the controller. An absolute path, or one from
    C(~), is taken as it is. Another one is looked for beside the inventory, then in the working directory, then where
    Ansible searches. What is in none of these places is an error that names them, and so is a link that leads nowhere.
options:
  _input:
    description:
      - The path. An empty one stays empty.
    type: string
    required: true
  inventory_dir:
    description:
      - The folder of the inventory.
    type: string
  search:
    description:
      - Further folders, usually C(ansible_search_path).
    type: list
    elements: string
    default: []
  new:
    description:
      - Whether it may be made. Then one that is nowhere is beside the inventory.
    type: boolean
    default: false
  inventory_sources:
    description:
      - For O(new), the inventories of the run (C(ansible_inventory_sources)). Ansible reads all files in an inventory
        that is a folder, so nothing is made in one of these, but beside it.
    type: list
    elements: string
    default: []
  variable:
    description:
      - The variable that holds the path, which errors name.
    type: string
    default: ''
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Show a certificate that lies beside the inventory
  ansible.builtin.debug:
    msg: "{{ lookup('ansible.builtin.file', 'ca.crt' | kubenode.provision.local_path(inventory_dir)) }}"
"""

RETURN = r"""
_value:
  description: An absolute path.
  type: string
"""

import os
from collections.abc import Callable, Iterable

from ansible.errors import AnsibleFilterError


def local_path(
    path: str,
    inventory_dir: str | None = None,
    search: Iterable[str] = (),
    new: bool = False,
    inventory_sources: Iterable[str] = (),
    variable: str = "",
) -> str:
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.preflight import controller_paths

    if not path:
        return ""
    try:
        if new:
            return controller_paths.for_writing(path, inventory_dir, inventory_sources)
        found = controller_paths.find(path, inventory_dir, search)
        if not os.path.exists(found):
            raise controller_paths.NotThere(f"{found} is a link that leads nowhere; mend the link")
        return found
    except controller_paths.NotThere as error:
        raise AnsibleFilterError(f"{variable}: {error}" if variable else str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., str]]:
        return {"local_path": local_path}
