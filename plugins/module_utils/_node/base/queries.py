# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What to look at on a machine of which nothing is known yet: the options of node_info."""

from __future__ import annotations

from ..join import machine
from . import packages, refusals


def queries(inputs, joins=False):
    """Few names, since each look costs time; a candidate is asked for only where a package decides the version.

    ``joins``: the role join follows and is to find everything here that it would ask for itself.
    """
    docker = inputs["container_runtime"] == "docker"
    join = machine.queries() if joins else {"binaries": [], "units": [], "files": []}
    return {
        "packages": packages.every_name(inputs),
        "candidates": inputs["manage_runtime"] and inputs["containerd_source"] != "tarball" and not docker,
        "binaries": ["dockerd" if docker else "containerd"] + join["binaries"],
        "units": join["units"],
        # a machine that has joined is no image
        "files": sorted({*(refusals.JOINED if inputs["prebake"] else ()), *join["files"]}),
        "sysctls": [],
        "modules": [],
    }
