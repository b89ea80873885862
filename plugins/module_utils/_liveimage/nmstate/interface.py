# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One entry of ``interfaces``: its kind, its state and what all kinds share."""

from __future__ import annotations

from ..errors import ImageError
from . import ovs
from .bond import bond
from .bridge import bridge
from .document import Fields
from .hardware import ethtool, ieee8021x, sriov
from .ip import stack
from .kinds import infiniband, macvlan, vlan, vrf, vxlan
from .profile import ABSENT, DOWN, IGNORE, NAMES, UP, Interface, interface_name, mac_of, profile_name, true_false

_OWN_SECTION = {
    "bond": "link-aggregation", "vlan": "vlan", "linux-bridge": "bridge", "veth": "veth", "infiniband": "infiniband",
    "vxlan": "vxlan", "mac-vlan": "mac-vlan", "mac-vtap": "mac-vtap", "vrf": "vrf", "ovs-bridge": "bridge",
}  # fmt: skip
_PROFILES = {"ovs-bridge": "-br", "ovs-interface": "-if"}  # a bridge and an interface in it often have one name
_READERS = {
    "bond": bond, "linux-bridge": bridge, "vlan": vlan, "vxlan": vxlan, "mac-vlan": macvlan, "mac-vtap": macvlan,
    "infiniband": infiniband, "vrf": vrf, "ovs-bridge": ovs.bridge,
}  # fmt: skip
_COPIES_MAC = ("bond", "linux-bridge")
_REASONS = {
    "ovs-port": "ports are listed in the section bridge of their ovs-bridge",
    "loopback": "NetworkManager before 1.42 does not touch it",
}
_LATER = "it is not needed to reach the network from a live image; make it in the installed system"
_OTHERS = ("macsec", "hsr", "ipsec", "ipvlan", "team", "tun")
_REFUSED = {
    "mptcp": "set it in the installed system",
    "dispatch": "its scripts would be run by NetworkManager; give a file instead",
    "pci-address": "identify the interface by name or by MAC address",
}
_MAY_FAIL = {"any": (True, True), "ipv4": (False, True), "ipv6": (True, False), "ipv4+ipv6": (False, False)}


def interface(fields: Fields) -> Interface:
    """An interface by its entry; of one that is to go or to be left alone, only what all kinds share is checked."""
    name = interface_name(fields.needed("name"), fields.at("name"))
    state = fields.choice("state", (UP, DOWN, ABSENT, IGNORE)) or UP
    if state in (ABSENT, IGNORE) and fields.text("type") in (*_REASONS, *_OTHERS, "unknown"):
        return Interface(name, fields.text("type") or "", fields.path, name, state)
    kind = _kind(fields)
    profile = profile_name(fields.text("profile-name") or name + _PROFILES.get(kind, ""), fields.at("profile-name"))
    found = Interface(name, kind, fields.path, profile, state)
    identifier = fields.choice("identifier", ("name", "mac-address", "pci-address")) or "name"
    if identifier == "pci-address":
        raise fields.wrong("identifier", "is not supported; identify the interface by name or by MAC address")
    found.by_mac = identifier == "mac-address"
    found.mac = mac_of(fields, "mac-address")
    if found.by_mac and kind != "ethernet":
        raise fields.wrong("identifier", f"is only for interfaces of type ethernet, this one is {kind}")
    if found.by_mac and found.mac is None:
        raise ImageError(f"{fields.at('mac-address')} is missing; identifier: mac-address needs it")
    found.mtu = fields.number("mtu", 68, 65535)
    found.controller = fields.text("controller")
    _shared(fields, found)
    found.v4, found.v6 = stack(fields.mapping("ipv4"), 4), stack(fields.mapping("ipv6"), 6)
    _wait(fields, found)
    _specific(fields, found)
    _hardware(fields, found)
    found.ovs_data = ovs.database(fields)
    for key, why in _REFUSED.items():
        fields.refuse(key, why)
    fields.ignore("driver", "max-mtu", "min-mtu", "permanent-mac-address")
    fields.done()
    if found.mtu is not None and found.v6.enabled and found.mtu < 1280:
        raise fields.wrong("mtu", "is less than 1280, which IPv6 needs")
    return found


def _kind(fields: Fields) -> str:
    given = fields.text("type")
    sections = [kind for kind, key in _OWN_SECTION.items() if fields.raw(key) is not None]
    if given is None:
        if sections:
            section = _OWN_SECTION[sections[0]]
            raise ImageError(f"{fields.at('type')} is missing; it is {sections[0]} by its section {section}")
        return "ethernet"
    if given not in NAMES or given in _REASONS:
        if given in _REASONS or given in _OTHERS:
            raise fields.wrong("type", f"is not supported: {_REASONS.get(given, _LATER)}")
        raise fields.wrong("type", f"is not one of {', '.join(NAMES)}")
    for kind in sections:
        if _OWN_SECTION[kind] != _OWN_SECTION.get(given) and not (kind == "veth" and given == "ethernet"):
            raise ImageError(f"{fields.at(_OWN_SECTION[kind])} has no meaning for type {given}")
    return "veth" if "veth" in sections else given


def _shared(fields: Fields, found: Interface) -> None:
    wired: dict[str, str] = {}
    if found.kind == "infiniband" and found.mac is not None:
        raise fields.wrong("mac-address", "has no meaning for type infiniband")
    if found.mac is not None:
        wired["mac-address" if found.by_mac else "cloned-mac-address"] = found.mac
    if found.mtu is not None and found.kind != "infiniband":
        wired["mtu"] = str(found.mtu)
    if fields.flag("accept-all-mac-addresses") is not None:
        wired["accept-all-mac-addresses"] = str(int(bool(fields.flag("accept-all-mac-addresses"))))
    link = fields.mapping("ethernet")
    if link is not None:
        if found.kind not in ("ethernet", "veth"):
            raise ImageError(f"{link.path} has no meaning for type {found.kind}")
        wired.update(_link(link, found))
    if wired:
        found.settings["ethernet"] = wired
    lldp = fields.mapping("lldp")
    if lldp is not None:
        enabled = lldp.flag("enabled")
        lldp.ignore("neighbors")
        lldp.done()
        if enabled is not None:
            found.section("connection")["lldp"] = str(int(enabled))
    text = fields.text("description")
    if text and text.strip():
        found.settings["user"] = {"nmstate.interface.description": text.strip()}


def _link(fields: Fields, found: Interface) -> dict[str, str]:
    negotiate, speed = fields.flag("auto-negotiation"), fields.number("speed", 1, 10_000_000)
    duplex = fields.choice("duplex", ("full", "half"))
    functions = fields.mapping("sr-iov")
    if functions is not None:
        sriov(functions, found)
    fields.refuse("fec", "set it in the installed system")
    fields.done()
    if negotiate is False and (speed is None) != (duplex is None):
        raise ImageError(f"{fields.path}: without auto-negotiation, give speed and duplex or neither")
    wired = {} if negotiate is None else {"auto-negotiate": true_false(negotiate)}
    if negotiate is False and speed is not None and duplex is not None:
        wired.update({"speed": str(speed), "duplex": duplex})
    return wired


def _wait(fields: Fields, found: Interface) -> None:
    given = fields.choice("wait-ip", tuple(_MAY_FAIL))
    if given is not None:
        for one, may_fail in zip((found.v4, found.v6), _MAY_FAIL[given]):
            one.settings["may-fail"] = true_false(may_fail)


def _specific(fields: Fields, found: Interface) -> None:
    """The section that only this kind has."""
    fields.ignore(*_OWN_SECTION.values())
    if found.kind == "ovs-interface":
        ovs.interface(fields, found)
    key = _OWN_SECTION.get(found.kind)
    section = fields.mapping(key) if key else None
    if key and section is None and found.kind in ("linux-bridge", "ovs-bridge"):
        section = Fields({}, fields.at(key))
    if key and section is None and found.state not in (ABSENT, IGNORE):
        raise ImageError(f"{fields.at(key)} is missing; type {found.kind} needs it")
    if section is None:
        return
    if found.kind in _READERS:
        _READERS[found.kind](section, found)
    else:
        found.peer = interface_name(section.needed("peer"), section.at("peer"))
        if found.peer == found.name:
            raise section.wrong("peer", "is the interface itself")
        found.settings["veth"] = {"peer": found.peer}
        section.done()


def _hardware(fields: Fields, found: Interface) -> None:
    """Sections of a card: kinds that have none refuse them."""
    for key, read in (("ethtool", ethtool), ("802.1x", ieee8021x)):
        section = fields.mapping(key)
        if section is not None:
            read(section, found)
    found.copy_mac = fields.text("copy-mac-from")
    if found.copy_mac is None:
        return
    if found.kind not in _COPIES_MAC:
        raise fields.wrong("copy-mac-from", f"has a meaning only for {' and '.join(_COPIES_MAC)}")
    if found.mac is not None:
        raise fields.wrong("copy-mac-from", "and mac-address exclude each other")
    interface_name(found.copy_mac, fields.at("copy-mac-from"))
