# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kinds of interfaces that use another one as their base: VLAN, VXLAN, MACVLAN, MACVTAP, InfiniBand; and VRFs."""

from __future__ import annotations

from ..errors import ImageError
from .document import Fields
from .profile import Interface, Port, address, interface_name, true_false

_MODES = ("vepa", "bridge", "private", "passthru", "source")  # NetworkManager counts from 1


def vlan(fields: Fields, found: Interface) -> None:
    """The section ``vlan``."""
    base = _base(fields, found, "vlan", needed=True)
    number = fields.number("id", 0, 4094)
    if number is None:
        raise ImageError(f"{fields.at('id')} is missing")
    protocol = fields.choice("protocol", ("802.1q", "802.1ad")) or "802.1q"
    registration = fields.choice("registration-protocol", ("none", "gvrp", "mvrp")) or "none"
    reorder, loose = fields.flag("reorder-headers"), fields.flag("loose-binding")
    fields.done()
    bits = (0 if reorder is False else 1) | {"none": 0, "gvrp": 2, "mvrp": 8}[registration] | (4 if loose else 0)
    found.same = (f"VLAN {number} of {base}", protocol)
    found.settings["vlan"] = {"id": str(number), "flags": str(bits)}
    if protocol != "802.1q":
        found.settings["vlan"]["protocol"] = protocol


def vxlan(fields: Fields, found: Interface) -> None:
    """The section ``vxlan``."""
    base = _base(fields, found, "vxlan", needed=False)
    number, port = fields.number("id", 0, 2**24 - 1), fields.number("destination-port", 1, 65535)
    if number is None:
        raise ImageError(f"{fields.at('id')} is missing")
    learning = fields.flag("learning")
    ends = {key: fields.text(key) for key in ("local", "remote")}
    settings = {"id": str(number)}
    settings.update({key: str(address(text, fields.at(key))) for key, text in ends.items() if text})
    fields.done()
    if learning is not None:
        settings["learning"] = true_false(learning)
    if port is not None:
        settings["destination-port"] = str(port)
    found.same = (f"VXLAN {number} of {base or 'any'}", str(ends))
    found.settings["vxlan"] = settings


def macvlan(fields: Fields, found: Interface) -> None:
    """The sections ``mac-vlan`` and ``mac-vtap``."""
    _base(fields, found, "macvlan", needed=True)
    mode, promiscuous = fields.choice("mode", _MODES), fields.flag("promiscuous")
    fields.done()
    if mode is None:
        raise ImageError(f"{fields.at('mode')} is missing; give one of {', '.join(_MODES)}")
    if promiscuous is False and mode != "passthru":
        raise fields.wrong("promiscuous", "has a meaning in mode passthru only")
    settings = {"mode": str(_MODES.index(mode) + 1), "tap": true_false(found.kind == "mac-vtap")}
    if promiscuous is not None:
        settings["promiscuous"] = true_false(promiscuous)
    found.settings["macvlan"] = settings


def infiniband(fields: Fields, found: Interface) -> None:
    """The section ``infiniband``."""
    base = _base(fields, found, "infiniband", needed=False)
    mode, key = fields.choice("mode", ("datagram", "connected")), fields.number("pkey", 0, 65535)
    fields.done()
    if mode is None:
        raise ImageError(f"{fields.at('mode')} is missing; give datagram or connected")
    settings = {"transport-mode": mode}
    if key is not None and key != 65535:
        if base is None:
            raise ImageError(f"{fields.at('base-iface')} is missing; pkey needs it")
        settings["p-key"] = str(key)
    elif base is not None:
        raise ImageError(f"{fields.at('pkey')} is missing; base-iface needs it")
    if found.mtu is not None:
        settings["mtu"] = str(found.mtu)
    found.settings["infiniband"] = settings


def vrf(fields: Fields, found: Interface) -> None:
    """The section ``vrf``."""
    found.table = fields.number("route-table-id", 1, 2**32 - 1)
    if found.table is None:
        raise ImageError(f"{fields.at('route-table-id')} is missing")
    key = "port" if fields.raw("port") is not None else "ports"
    if key == "port" and fields.raw("ports") is not None:
        raise ImageError(f"{fields.at('port')} and {fields.at('ports')} are the same; give one")
    if fields.raw(key) is not None:
        found.ports = []
        for at, name in enumerate(fields.texts(key)):
            path = f"{fields.at(key)}[{at}]"
            if any(port.name == name for port in found.ports):
                raise ImageError(f"{path}: {name} is listed twice")
            found.ports.append(Port(interface_name(name, path), path))
    fields.done()
    found.settings["vrf"] = {"table": str(found.table)}


def _base(fields: Fields, found: Interface, section: str, *, needed: bool) -> str | None:
    """The interface below it, which the keyfile names in this section."""
    name = fields.needed("base-iface") if needed else fields.text("base-iface")
    if not name:
        return None
    found.base = interface_name(name, fields.at("base-iface"))
    found.base_at = (section, fields.at("base-iface"))
    return found.base
