# Copyright (c) 2026 kubenode.provision authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: base_plan
short_description: Plans what the role base does on a machine
version_added: 1.0.0
positional: purpose
description:
  - This filter is the role's own. It may change with any release; plays of a user's own call the role.
  - Checks the variables of the role C(base) and turns them, with the facts of a machine, into options and settings for
    the modules of this collection. Nothing is read or written on the machine.
options:
  _input:
    description:
      - The variables of the role, with or without C(base_) in front, for O(purpose=inputs). Else what O(purpose=inputs)
        returned.
    type: dictionary
    required: true
  purpose:
    description:
      - What to return.
    type: string
    choices:
      variables: The names of the role's variables, without C(base_).
      inputs: The variables, checked and complete. Credentials are never part of an error. Needs O(versions).
      steps: The steps of this run, by its tags.
      queries: Options for M(kubenode.provision.node_info).
      preflight: What speaks against the machine (C(refusals)), what is doubtful (C(warnings)), and the names of what it
        lacks (C(packages), C(artifacts)). No URL and no content, so that it can be kept as a fact. Needs O(node).
      sources: Settings that must be there before packages are fetched. Needs O(node).
      artifacts: What M(kubenode.provision.node_artifacts) has to fetch. Needs O(node).
      settings: Settings for M(kubenode.provision.node_settings). Needs O(node).
      secrets: Secrets that belong to the settings of all steps. Needs O(node).
      images: What M(kubenode.provision.node_images) has to bring.
    required: true
  node:
    description:
      - RV(kubenode.provision.node_info#module:node).
    type: dictionary
  steps:
    description:
      - What O(purpose=steps) returned. All managed steps when it is not given.
    type: list
    elements: string
  versions:
    description:
      - The data file of the role, variable C(base_versions) in its C(vars/main/versions.yml).
    type: dictionary
  fail:
    description:
      - Whether a variable that is refused fails the task. Otherwise the result is a dictionary with C(refused), so that
        a hidden task can take the variables and the next one says what is wrong.
    type: boolean
    default: true
  run_tags:
    description:
      - The tags of the run, for O(purpose=steps). Tags that the role does not have choose every step.
    type: list
    elements: string
    default: [all]
  skip_tags:
    description:
      - The tags that the run leaves out, for O(purpose=steps).
    type: list
    elements: string
    default: []
  joins:
    description:
      - Whether the role C(join) follows and takes its facts from the same look, for O(purpose=queries).
    type: boolean
    default: false
  before:
    description:
      - The clock of the controller just before the facts were read, in seconds since 1970, for O(purpose=preflight).
        The machine's clock is compared with the time in which it was read, so that a slow connection is no wrong clock.
        When it is not given, the time at which the filter runs is taken.
    type: float
  inventory_dir:
    description:
      - The folder of the inventory, beside which paths of the controller are looked for first, for O(purpose=inputs).
    type: string
  search:
    description:
      - Further folders where they are looked for, usually C(ansible_search_path).
    type: list
    elements: string
    default: []
author:
  - kubenode.provision authors (@kubenode)
"""

EXAMPLES = r"""
- name: See what the role would take
  ansible.builtin.debug:
    msg: "{{ {'kubernetes_version': '1.35.8'} | kubenode.provision.base_plan('inputs', versions=base_versions) }}"
"""

RETURN = r"""
_value:
  description: What O(purpose) says.
  type: raw
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.provision.plugins.plugin_utils.plain import plain

#: purposes that need the facts of a machine
_WITH_NODE = ("preflight", "sources", "artifacts", "settings", "secrets")


def base_plan(
    given: Mapping[str, Any],
    purpose: str,
    node: Mapping[str, Any] | None = None,
    steps: Sequence[str] | None = None,
    versions: Mapping[str, Any] | None = None,
    fail: bool = True,
    run_tags: Sequence[str] = ("all",),
    skip_tags: Sequence[str] = (),
    joins: bool = False,
    before: float | None = None,
    inventory_dir: str | None = None,
    search: Sequence[str] = (),
) -> Any:
    """What ``purpose`` says; every error names the variable, its value and the fix."""
    after = time.time()
    # ansible-core imports every filter file in each worker, for any one filter
    from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_inputs, downloads
    from ansible_collections.kubenode.provision.plugins.plugin_utils.node_plan import base_plan as plan

    given_, node_, data = plain(given), plain(node), plain(versions)
    answers: dict[str, Callable[[], Any]] = {
        "variables": lambda: list(base_inputs.variables()),
        "inputs": lambda: plan.checked_inputs(given_, data, fail, inventory_dir, search),
        "steps": lambda: plan.steps(given_, run_tags, skip_tags),
        "queries": lambda: plan.queries(given_, joins),
        "preflight": lambda: plan.checked(
            node_, given_, steps or (), after if before is None else float(before), after
        ),
        "sources": lambda: plan.sources(node_, given_),
        "artifacts": lambda: downloads.missing(node_, given_, steps),
        "settings": lambda: plan.settings(node_, given_, steps),
        "secrets": lambda: plan.secrets(node_, given_),
        "images": lambda: downloads.images(given_),
    }
    if purpose not in answers:
        raise AnsibleFilterError(f"base_plan: {purpose!r} must be one of {', '.join(answers)}")
    if not isinstance(given, Mapping):
        raise AnsibleFilterError(f"base_plan: feed it a dictionary, not a {type(given).__name__}")
    if purpose in _WITH_NODE and not isinstance(node, Mapping):
        raise AnsibleFilterError(f"base_plan: {purpose} needs node")
    try:
        return answers[purpose]()
    except (ValueError, KeyError) as error:
        text = f"{error} is missing in what it was given" if isinstance(error, KeyError) else str(error)
        raise AnsibleFilterError(f"base_plan: {text}") from error


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        """Filters by name."""
        return {"base_plan": base_plan}
