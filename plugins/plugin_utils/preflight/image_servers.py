# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image server would not serve of a run of preprov_images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed, one_line


def image_server_findings(
    hosts: Iterable[Mapping[str, Any]], servers: Iterable[Mapping[str, Any]], folder: str
) -> list[str]:
    """A sentence for each thing that a server would leave out, and say so on its own page of status only.

    ``hosts`` and ``servers``: their variables. ``folder``: where servers of the role take descriptors from.
    """
    hosts, found = list(hosts), []
    names = [str(host.get("kubenode_image_name") or host["inventory_hostname"]) for host in hosts]
    given = [name for host, name in zip(hosts, names, strict=True) if host.get("kubenode_image_state") != "absent"]
    for server in servers:
        own = server.get("image_server_hosts")
        twice = [name for name in given if isinstance(own, Mapping) and name in own]
        who = server["inventory_hostname"]
        if twice:
            found.append(
                f"{listed(twice)}: {who} has an image of that name by its image_server_hosts, and would not serve a "
                "second one; take the host out there and run the role, or leave it out of this run"
            )
        dest = hosts[0].get("kubenode_image_dest") if hosts else None
        if dest and os.path.normpath(str(dest)) != folder:
            found.append(
                f"kubenode_image_dest is {one_line(dest, 200)}, but {who} serves the descriptors in {folder}; leave "
                "kubenode_image_dest out, which is for files on this controller"
            )
    return found
