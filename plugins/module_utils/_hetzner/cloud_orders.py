# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a new server is ordered with: everything that a machine names, looked up in the project."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import cloud_networks
from .api_types import Machine, Resolved, Server
from .catalog import Catalog, Unfit
from .cloud_choices import find_choices
from .labels import LABEL, LONGEST_USER_DATA
from .login_keys import resolve_keys

#: What the disk of a new server holds when nothing else is asked for: it is there to be overwritten.
PLACEHOLDER = "ubuntu-24.04"


def wanted_labels(machine: Machine) -> dict[str, str | None]:
    """The labels a machine's server must have, ours among them; None for one that it must not have."""
    return dict(machine.get("labels") or {}, **{LABEL: machine["name"]})


def labelled(before: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str]:
    """The labels of a server that has these, after what is wanted was set and removed."""
    return {key: value for key, value in {**before, **wanted}.items() if value is not None}


def read_user_data(machine: Machine) -> None:
    """Take the user data of a machine from its file, if it has one; raises Unfit."""
    path = machine.get("user_data_file")
    if not path:
        return
    if machine.get("user_data"):
        raise Unfit("user_data_file: there is user_data, too; leave one of the two out")
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            # more than the API takes is refused later
            machine["user_data"] = file.read(2 * LONGEST_USER_DATA)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise Unfit(f"user_data_file: '{path}' cannot be read on the controller: {reason}") from error


def create_body(machine: Machine, resolved: Resolved) -> dict[str, Any]:
    """The request body that creates a machine, powered off; ``resolved`` holds the ids of the names.

    Type, location and image come from one of the choices.
    """
    body = {
        "name": machine["name"],
        "ssh_keys": [key["id"] for key in resolved["ssh_keys"]],
        "labels": labelled({}, wanted_labels(machine)),
        "start_after_create": False,
        "public_net": {
            "enable_ipv4": machine.get("enable_ipv4", True),
            "enable_ipv6": machine.get("enable_ipv6", True),
            **resolved["primary_ips"],
        },
    }
    optional = {
        "networks": [one["network"] for one in resolved["networks"] if not cloud_networks.needs_action(one)],
        "firewalls": [{"firewall": firewall} for firewall in resolved["firewalls"]],
        "placement_group": resolved["placement_group"],
        "user_data": machine.get("user_data"),
    }
    body.update({key: value for key, value in optional.items() if value})
    return body


def resolve(
    machine: Machine,
    catalog: Catalog,
    public_key: str | None = None,
    private_key_path: str | None = None,
    written: bool = True,
    server: Server | None = None,
) -> Resolved:
    """Everything a machine names, looked up in the project; raises Unfit for what cannot work.

    ``written``: its disk is written after it was made. ``server``: the one of its name, if it exists.
    """
    group = machine.get("placement_group")
    places = cloud_networks.resolve_attachments(machine, catalog)
    primary = cloud_networks.primary_ips(machine, catalog)
    image = machine.get("image") or PLACEHOLDER
    choices = find_choices(machine, catalog, image, written, exists=server is not None)
    if server is None:
        choices = cloud_networks.where_it_can_be(machine, choices, catalog, places, primary)
        for kind, item in primary.items():
            cloud_networks.check_free(kind, item)
        finding = cloud_networks.reach_finding(machine, places, catalog, cloud_networks.routes_of_this_host)
        if finding:
            raise Unfit(finding)
    return {
        "choices": choices,
        "ssh_keys": resolve_keys(
            "ssh_keys",
            machine.get("ssh_keys"),
            catalog.ssh_keys(),
            public_key,
            private_key_path,
            catalog.ssh_keys_with,
        ),
        "networks": places,
        "primary_ips": {kind: item["id"] for kind, item in primary.items()},
        "firewalls": [catalog.resolve("firewalls", name, "firewalls") for name in machine.get("firewalls") or []],
        "placement_group": catalog.resolve("placement_group", group, "placement_groups") if group else None,
    }
