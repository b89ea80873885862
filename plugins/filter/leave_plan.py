# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: leave_plan
short_description: Which machines of a run are to go, and what is wrong with what the user said
version_added: 0.1.0
positional: word, given, known
description:
  - Used by the playbooks C(hcloud_delete), C(robot_release) and C(node_reboot) before they do anything.
  - A C(kubenode_*) variable that does not belong to this collection causes a warning.
options:
  _input:
    description:
      - The variables of the hosts of the run, usually C(ansible_play_hosts | map('extract', hostvars)).
    type: list
    elements: dictionary
    required: true
  word:
    description:
      - Which variable names the machines, V(delete) or V(release). Without it, no machine needs to be named.
    type: string
    default: ''
  given:
    description:
      - The value of that variable, a list of names or a dictionary of names and installations.
    type: raw
  known:
    description:
      - All hosts of the inventory.
    type: list
    elements: string
    default: []
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Look at what the user said
  ansible.builtin.set_fact:
    plan: >-
      {{ ansible_play_hosts | map('extract', hostvars)
         | kubenode.provision.leave_plan('delete', kubenode_delete | default(none), groups['all']) }}
"""

RETURN = r"""
_value:
  description:
    - C(errors), what is wrong, a sentence each; C(named), the machines of the run that go, and C(machines), the same as
      dictionaries with C(name); C(left), its others; C(elsewhere), machines that are named and not of the run;
      C(word), what was given, for C(named) alone.
  type: dictionary
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars


def leave_plan(
    hosts: Iterable[Mapping[str, Any]], word: str = "", given: Any = None, known: Collection[str] = ()
) -> dict[str, Any]:
    """See DOCUMENTATION."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _leaving
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _variables as _spelling

    if word not in ("", "delete", "release"):
        raise AnsibleFilterError(f"leave_plan: word is {word!r}; use delete or release, or leave it out")
    hosts = list(hosts)
    for sentence in _spelling.unknown(hosts):
        Display().warning(sentence)
    # What the command line gave was read when Ansible started, and is kept.
    return _leaving.plan(hosts, word, given, known, load_extra_vars(DataLoader()))


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"leave_plan": leave_plan}
