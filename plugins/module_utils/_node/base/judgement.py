# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What one look at a machine says: why not to begin, what is doubtful, what has to be installed and fetched."""

from __future__ import annotations

from . import artifacts, packages, refusals

#: step → the programs it fetches
_PROGRAMS = {
    "runtime": ("containerd", "runc", "crictl", "cri-dockerd"),
    "cni": ("cni-plugins",),
    "kubelet": ("kubelet", "kubeadm"),
}


def judgement(node, inputs, steps, before, after):
    """``{refusals, warnings, packages, artifacts}``: sentences, package names as the manager spells them, programs.

    ``before`` and ``after`` are the controller's clock (seconds since 1970) around the moment the facts were read.
    Nothing is planned for a machine that is refused.
    """
    found = {
        "refusals": refusals.refusals(node, inputs, before, after),
        "warnings": refusals.warnings(node, inputs),
        "packages": [],
        "artifacts": [],
    }
    if not found["refusals"]:
        if inputs["manage_packages"]:
            found["packages"] = packages.packages(node, inputs)["missing"]
        wanted = {name for step in steps for name in _PROGRAMS.get(step, ())}
        found["artifacts"] = [one["name"] for one in artifacts.missing(node, inputs) if one["name"] in wanted]
    return found
