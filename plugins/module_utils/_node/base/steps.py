# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Which steps of base a run is about."""

from __future__ import annotations

from .inputs import STEPS, managed

#: tags of the role that are no steps: they choose parts of every run
OTHERS = ("preflight", "prebake")


def steps(inputs, run_tags, skip_tags):
    """The managed steps that the tags of the run leave, in order.

    Tags that are none of base, such as one that a playbook gave the whole role, choose every step.
    """
    named = [tag for tag in run_tags if tag in STEPS or tag in OTHERS]
    return [step for step in managed(inputs) if (not named or step in named) and step not in skip_tags]
