# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A whole document: read, checked, connected, written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ImageError
from .dns import dns
from .document import Fields
from .interface import interface
from .ip_routes import routes, rules
from .profile import DOWN, MOST_INTERFACES, UP, Interface, keyfile_text
from .topology import connect, connection, ordered

_POLICY = "a policy asks the host what it has, and a live image is made before that; give the interfaces themselves"
_REFUSED = {
    "capture": _POLICY,
    "desired": _POLICY,
    "desiredState": _POLICY,
    "policy": _POLICY,
    "ovs-db": "NetworkManager has no keys for Open vSwitch as a whole; give other_config of its bridges and ports",
    "ovn": "NetworkManager has no keys for it",
}


@dataclass(frozen=True)
class Profiles:
    """Keyfiles by file name, controllers before ports; ``warnings`` name what has no effect."""

    files: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def keyfiles(document: Mapping[str, Any]) -> dict[str, str]:
    """The keyfiles of a document by their file names; equal documents give equal bytes."""
    return dict(convert(document).files)


def convert(document: Mapping[str, Any]) -> Profiles:
    """The same with what the user should know; ImageError names the path of the first thing that is wrong."""
    fields = Fields(document, "")
    for key, why in _REFUSED.items():
        fields.refuse(key, why)
    sections = {key: fields.mapping(key) for key in ("hostname", "routes", "route-rules", "dns-resolver")}
    found, others = _interfaces(fields.mappings("interfaces"))
    fields.done()
    warnings = [*_hostname(sections["hostname"]), *connect(found, others)]
    in_order = ordered(found)
    for key, place in (("routes", routes), ("route-rules", rules), ("dns-resolver", dns)):
        section = sections[key]
        if section is not None:
            place(section, found)
    return Profiles(_files(in_order), tuple(warnings))


def _interfaces(entries: list[Fields]) -> tuple[dict[str, Interface], dict[str, str]]:
    """Those that get a profile, and the names and states of the others."""
    if len(entries) > MOST_INTERFACES:
        raise ImageError(f"interfaces has {len(entries)} entries, {MOST_INTERFACES} is the most")
    every: dict[str, Interface] = {}
    for entry in entries:
        one = interface(entry)
        if one.key in every:
            raise ImageError(f"{entry.path}.name: {one.name} is given twice")
        every[one.key] = one
    found = {key: one for key, one in every.items() if one.state in (UP, DOWN)}
    return found, {key: one.state for key, one in every.items() if key not in found}


def _hostname(fields: Fields | None) -> list[str]:
    if fields is None:
        return []
    fields.ignore("running")
    given = fields.text("config")
    fields.done()
    if not given:
        return []
    return ["hostname.config has no effect, since keyfiles hold no host name; give the host's name as such"]


def _files(in_order: list[Interface]) -> dict[str, str]:
    files: dict[str, str] = {}
    for one in in_order:
        name = one.profile + ".nmconnection"
        if name in files:
            raise ImageError(f"{one.path}.profile-name: {one.profile} is given twice")
        one.section("connection").update(connection(one))
        if one.has_ip:
            one.settings["ipv4"], one.settings["ipv6"] = one.v4.settings, one.v6.settings
        files[name] = keyfile_text(one.settings)
    return files
