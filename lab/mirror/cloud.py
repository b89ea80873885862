# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap data that aims a machine's apt at the mirror, and says that there is no DNS."""

from __future__ import annotations

from typing import Any

from lab.images import cache

from . import repository

_KEY = "/etc/apt/keyrings/kubenode-lab.asc"


def cloud_config(mirror_url: str, suite: str) -> dict[str, Any]:
    """The ``#cloud-config`` (as a dictionary) after which apt knows the mirror's repository of this suite alone."""
    if suite not in repository.IMAGES:
        raise ValueError(f"suite is '{suite}'; the mirror has {', '.join(sorted(repository.IMAGES))}")
    with cache.locked("mirror"):
        key = repository.public_key().read_text()
    source = f"deb [signed-by={_KEY}] {mirror_url}/apt/{suite} ./\n"
    return {
        # Or cloud-init writes a list of its own.
        "apt": {"preserve_sources_list": True},
        "write_files": [
            {"path": _KEY, "content": key, "permissions": "0644"},
            {"path": "/etc/apt/sources.list", "content": source, "permissions": "0644"},
            # Every machine of a provider has one; a kubelet makes those of its pods from it.
            {"path": "/etc/resolv.conf", "content": "# The lab has no DNS.\n", "permissions": "0644"},
        ],
    }
