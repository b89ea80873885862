# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role node_user_data is given: the inputs of a host by the names of its variables, and the hosts together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.kubenode.provision.plugins.module_utils._common.text import listed

from ..node_plan import user_data
from ..role_specs import plain
from ..shown_warnings import warn
from . import specification

_ROLE = "node_user_data"
#: What the role keeps of each host before it looks at all of them: names of its variables, and its file.
_KEPT = "__node_user_data_of_host"


def problems(inputs: Any, format_name: str, limit: int) -> list[str]:
    """What is wrong with the variables of one host."""
    found = []
    if format_name not in user_data.FORMATS:
        found.append(f"{_ROLE}_format: is {format_name!r}; choose one of {', '.join(user_data.FORMATS)}")
        format_name = next(iter(user_data.FORMATS))
    try:
        user_data.user_data(plain(inputs), format_name, limit)
    except user_data.InputError as error:
        found += map(user_data.in_role, str(error).splitlines())
    return found


def of_hosts(hosts: Mapping[str, Any]) -> list[str]:
    """What is wrong with the hosts together; a misspelt variable is a warning. ``hosts``: the variables of all."""
    kept = {name: variables[_KEPT] for name, variables in hosts.items() if _KEPT in variables}
    given = [{**dict.fromkeys(one["names"]), "inventory_hostname": name} for name, one in kept.items()]
    for sentence in specification.unknown_of_roles(given, (_ROLE, *user_data.ROLES)):
        warn(sentence)
    files: dict[str, list[str]] = {}
    for name, one in kept.items():
        files.setdefault(one["path"], []).append(name)
    return [
        f"{_ROLE}_dest: {path} is the file of {listed(sorted(names))}; give each host its own, with "
        "inventory_hostname in the name"
        for path, names in files.items()
        if path and len(names) > 1
    ]
