# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One entry of ``interfaces``: its kind, its state and what all kinds share."""

from __future__ import annotations

import re

from ..errors import ImageError
from . import ovs
from .controllers import bond, bridge
from .document import Fields
from .ip import loopback_stack, stack
from .kinds import ethtool, hsr, ieee8021x, infiniband, ipvlan, macsec, macvlan, sriov, vlan, vrf, vxlan
from .profile import (
    ABSENT,
    DOWN,
    IGNORE,
    LOOPBACK,
    NAMES,
    UP,
    Interface,
    interface_name,
    mac_of,
    profile_name,
    true_false,
)

_OWN_SECTION = {
    "bond": "link-aggregation", "vlan": "vlan", "linux-bridge": "bridge", "veth": "veth", "infiniband": "infiniband",
    "vxlan": "vxlan", "mac-vlan": "mac-vlan", "mac-vtap": "mac-vtap", "vrf": "vrf", "ovs-bridge": "bridge",
    "macsec": "macsec", "hsr": "hsr", "ipvlan": "ipvlan",
}  # fmt: skip
_PROFILES = {"ovs-bridge": "-br", "ovs-interface": "-if"}  # a bridge and an interface in it often have one name
_READERS = {
    "bond": bond, "linux-bridge": bridge, "vlan": vlan, "vxlan": vxlan, "mac-vlan": macvlan, "mac-vtap": macvlan,
    "infiniband": infiniband, "vrf": vrf, "ovs-bridge": ovs.bridge, "macsec": macsec, "hsr": hsr, "ipvlan": ipvlan,
}  # fmt: skip
_COPIES_MAC = ("bond", "linux-bridge")
_REASONS = {
    "ovs-port": "ports are listed in the section bridge of their ovs-bridge",
    "ipsec": "NetworkManager does not start such a profile by itself",
    "team": "its program is in no live image; use a bond",
    "tun": "it is not needed to reach the network from a live image; make it in the installed system",
}
_REFUSED = {"dispatch": "its scripts would be run by NetworkManager; give a file instead"}
_LARGEST_MTU = {"loopback": 65536, "vrf": 65575}  # what they have, and nmstatectl shows
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")
_MPTCP = {"signal": 0x10, "subflow": 0x20, "backup": 0x40, "fullmesh": 0x80}
_MPTCP_OFF, _MPTCP_ALWAYS = 0x01, 0x08  # for no address; for those that no default route belongs to, too
_MAY_FAIL = {"any": (True, True), "ipv4": (False, True), "ipv6": (True, False), "ipv4+ipv6": (False, False)}


def interface(fields: Fields) -> Interface:
    """An interface by its entry; of one that is to go or to be left alone, only what all kinds share is checked."""
    name = fields.needed("name")
    if name != LOOPBACK or fields.text("type") != "loopback":
        interface_name(name, fields.at("name"))
    state = fields.choice("state", (UP, DOWN, ABSENT, IGNORE)) or UP
    if state in (ABSENT, IGNORE) and fields.text("type") in (*_REASONS, "unknown"):
        return Interface(name, fields.text("type") or "", fields.path, name, state)
    kind = _kind(fields)
    profile = profile_name(fields.text("profile-name") or name + _PROFILES.get(kind, ""), fields.at("profile-name"))
    found = Interface(name, kind, fields.path, profile, state)
    _identity(fields, found)
    found.mtu = fields.number("mtu", 68, _LARGEST_MTU.get(kind, 65535))
    found.controller = fields.text("controller")
    _shared(fields, found)
    read = loopback_stack if kind == "loopback" else stack
    found.v4, found.v6 = read(fields.mapping("ipv4"), 4), read(fields.mapping("ipv6"), 6)
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


def _identity(fields: Fields, found: Interface) -> None:
    """Its MAC address, and what it goes by unless that is its name."""
    identifier = fields.choice("identifier", ("name", "mac-address", "pci-address")) or "name"
    place = fields.text("pci-address")
    if place is not None and not _PCI.match(place):
        raise fields.wrong("pci-address", "is no PCI address such as 0000:00:1f.6")
    if found.kind == "loopback":
        if found.name != LOOPBACK:
            raise fields.wrong("name", f"is no loopback interface; its name is {LOOPBACK}")
        fields.ignore("mac-address")  # nmstatectl shows zeros
    else:
        found.mac = mac_of(fields, "mac-address")
    if identifier == "name":
        return
    if found.kind != "ethernet":
        raise fields.wrong("identifier", f"is only for interfaces of type ethernet, this one is {found.kind}")
    value = found.mac if identifier == "mac-address" else place
    if value is None:
        raise ImageError(f"{fields.at(identifier)} is missing; identifier: {identifier} needs it")
    found.identity = identifier, value
    if identifier == "pci-address":
        found.settings["match"] = {"path": f"pci-{value};"}


def _kind(fields: Fields) -> str:
    given = fields.text("type")
    sections = [kind for kind, key in _OWN_SECTION.items() if fields.raw(key) is not None]
    if given is None:
        if sections:
            section = _OWN_SECTION[sections[0]]
            raise ImageError(f"{fields.at('type')} is missing; it is {sections[0]} by its section {section}")
        return "ethernet"
    if given not in NAMES or given in _REASONS:
        if given in _REASONS:
            raise fields.wrong("type", f"is not supported: {_REASONS[given]}")
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
        by_mac = found.identity == ("mac-address", found.mac)
        wired["mac-address" if by_mac else "cloned-mac-address"] = found.mac
    if found.mtu is not None and found.kind != "infiniband":
        wired["mtu"] = str(found.mtu)
    if fields.flag("accept-all-mac-addresses") is not None:
        wired["accept-all-mac-addresses"] = str(int(bool(fields.flag("accept-all-mac-addresses"))))
    link = fields.mapping("ethernet")
    if link is not None:
        if found.kind not in ("ethernet", "veth"):
            raise ImageError(f"{link.path} has no meaning for type {found.kind}")
        wired.update(_link(link, found))
    if found.kind == "loopback" and wired.pop("accept-all-mac-addresses", "0") != "0":
        raise ImageError(f"{fields.at('accept-all-mac-addresses')} has no meaning for type loopback")
    if wired:
        found.settings["loopback" if found.kind == "loopback" else "ethernet"] = wired
    addresses = fields.mapping("mptcp")
    if addresses is not None:
        flags = addresses.texts("address-flags")
        addresses.done()
        for one in flags:
            if one not in _MPTCP:
                raise addresses.wrong("address-flags", f"has {one!a}, which is not one of {', '.join(_MPTCP)}")
        value = sum({_MPTCP[one] for one in flags}) | _MPTCP_ALWAYS if flags else _MPTCP_OFF
        found.section("connection")["mptcp-flags"] = str(value)
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
