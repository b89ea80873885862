# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_summary
short_description: Sums up what became of a fleet, in a few figures
version_added: 0.1.0
positional: phase, api_calls, before
description:
  - What the playbooks give to C(ansible.builtin.set_stats), so that a workflow of AWX can decide by it.
options:
  _input:
    description:
      - The C(machines) that M(kubenode.provision.machine_install) returned.
    type: list
    elements: dictionary
    required: true
  phase:
    description:
      - The C(machines) that the API phase returned. One that is not in the input counts as failed, unless it was left
        alone.
    type: list
    elements: dictionary
    default: []
  api_calls:
    description:
      - The requests of the run.
    type: integer
    default: 0
  before:
    description:
      - What this filter returned before, when these machines have another try. They count as failed there.
    type: dictionary
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: Let the next job of the workflow know
  ansible.builtin.set_stats:
    data:
      fleet: "{{ installed.machines | kubenode.provision.provision_summary(armed.machines, armed.api_calls) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - The numbers C(machines), C(verified), C(unverified), C(changed), C(failed) and C(api_calls), and C(reasons), a
      dictionary of failed machines and why they failed (at most 100).
  type: dictionary
"""

from collections.abc import Iterable, Mapping
from typing import Any


def provision_summary(
    machines: Iterable[Mapping[str, Any]],
    phase: Iterable[Mapping[str, Any]] = (),
    api_calls: int = 0,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """See DOCUMENTATION."""
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils import _events

    return _events.summary(machines, phase, api_calls, before)


class FilterModule:
    """The filters of this file."""

    def filters(self):
        return {"provision_summary": provision_summary}
