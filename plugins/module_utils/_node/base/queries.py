# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What to look at on a machine of which nothing is known yet: the options of node_info."""

from __future__ import annotations

from . import packages, refusals


def queries(inputs):
    """Few names, since each look costs time; a candidate is asked for only where a package decides the version."""
    docker = inputs["container_runtime"] == "docker"
    return {
        "packages": packages.every_name(inputs),
        "candidates": inputs["manage_runtime"] and inputs["containerd_source"] != "tarball" and not docker,
        "binaries": ["dockerd"] if docker else ["containerd"],
        "units": [],
        # a machine that has joined is no image
        "files": list(refusals.JOINED) if inputs["prebake"] else [],
        "sysctls": [],
        "modules": [],
    }
