# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: variable_findings
short_description: What contradicts itself among the variables of the machines of a run
version_added: 0.1.0
positional: playbook, roles
description:
  - The first thing that the playbooks of this collection do. Each contradiction is one sentence with the machines, the
    variables, their values and the fix.
  - A warning is given for each variable that does not exist, with the nearest one that does, and for each that the
    playbook does not use although one could think so.
options:
  _input:
    description:
      - The variables of the hosts, usually C(ansible_play_hosts | map('extract', hostvars)).
    type: list
    elements: dictionary
    required: true
  playbook:
    description:
      - The playbook, without C(kubenode.provision.).
    type: string
    required: true
  roles:
    description:
      - Roles of this collection that the playbook runs. A variable that is nearly one of theirs causes a warning, too.
    type: list
    elements: string
    default: []
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Check that the variables of the machines go together
  ansible.builtin.assert:
    that: found | length == 0
    fail_msg: "{{ found | join('; ') }}"
  vars:
    found: >-
      {{ ansible_play_hosts | map('extract', hostvars) | kubenode.provision.variable_findings('hcloud_image_url') }}
  run_once: true
"""

RETURN = r"""
_value:
  description: One sentence for each contradiction.
  type: list
  elements: string
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.utils.display import Display


def variable_findings(hosts: Iterable[Mapping[str, Any]], playbook: str, roles: Iterable[str] = ()) -> list[str]:
    """See DOCUMENTATION."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _conflicts
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _variables as _spelling

    hosts = list(hosts)
    misspelt = [*_spelling.unknown(hosts), *_spelling.unknown_of_roles(hosts, roles)]
    for sentence in [*misspelt, *_conflicts.unused(hosts, playbook)]:
        Display().warning(sentence)
    return [*_conflicts.refused(hosts, playbook), *_conflicts.misfits(hosts, playbook)]


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"variable_findings": variable_findings}
