# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Kinds of interfaces that use others: VLAN, VXLAN, MACVLAN, MACVTAP, IPVLAN, MACsec, InfiniBand, HSR; and VRFs."""

from __future__ import annotations

import re

from ..errors import ImageError
from .document import Fields
from .hardware import HIDDEN
from .profile import Below, Interface, Port, address, interface_name, true_false

_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]+")
_LAYERS = ("l2", "l3", "l3s")  # NetworkManager counts from 1
_VALIDATION, _OFFLOAD = ("disabled", "check", "strict"), ("off", "phy", "mac")
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


def ipvlan(fields: Fields, found: Interface) -> None:
    """The section ``ipvlan``."""
    _base(fields, found, "ipvlan", needed=True)
    mode = fields.choice("mode", _LAYERS) or _LAYERS[0]
    flags = {key: fields.flag(key) for key in ("private", "vepa")}
    fields.done()
    if all(flags.values()):
        raise ImageError(f"{fields.at('private')} and vepa exclude each other")
    found.settings["ipvlan"] = {"mode": str(_LAYERS.index(mode) + 1)}
    found.settings["ipvlan"].update({key: true_false(one) for key, one in flags.items() if one is not None})


def macsec(fields: Fields, found: Interface) -> None:
    """The section ``macsec``. Its key is in the profile, which only root reads, and in no message."""
    base = _base(fields, found, "macsec", needed=True)
    encrypt, sci = fields.flag("encrypt"), fields.flag("send-sci")
    port = fields.number("port", 0, 65534)
    words = {"validation": _VALIDATION, "offload": _OFFLOAD}
    given = {option: (fields.choice(option, known), known) for option, known in words.items()}
    key, name = fields.secret("mka-cak"), fields.text("mka-ckn")
    fields.done()
    if not key or not name:
        raise ImageError(f"{fields.at('mka-ckn' if key else 'mka-cak')} is missing; MACsec needs mka-cak and mka-ckn")
    if key == HIDDEN:
        raise ImageError(f"{fields.at('mka-cak')} was hidden by nmstatectl; give the key itself")
    if not _HEXADECIMAL.fullmatch(key) or len(key) != 32:
        raise ImageError(f"{fields.at('mka-cak')} is no key of 32 hexadecimal digits")
    if not _HEXADECIMAL.fullmatch(name) or len(name) % 2 or len(name) > 64:
        raise fields.wrong("mka-ckn", "is no name of 2 to 64 hexadecimal digits, an even number of them")
    found.same = (f"MACsec {port or 1} of {base}",)
    settings = {"mode": "0", "mka-cak": key, "mka-ckn": name}
    if port:
        settings["port"] = str(port)
    for option, value in (("encrypt", encrypt), ("send-sci", sci)):
        if value is not None:
            settings[option] = true_false(value)
    settings.update({option: str(known.index(word)) for option, (word, known) in given.items() if word is not None})
    found.settings["macsec"] = settings


def hsr(fields: Fields, found: Interface) -> None:
    """The section ``hsr``: two ports that carry the same."""
    for key in ("port1", "port2"):
        name = interface_name(fields.needed(key), fields.at(key))
        found.below.append(Below(name, fields.at(key), "hsr", key))
    if found.below[0].name == found.below[1].name:
        raise fields.wrong("port2", "is port1, too")
    spec = fields.number("multicast-spec", 0, 255)
    protocol = fields.choice("protocol", ("hsr", "prp")) or "hsr"
    fields.ignore("supervision-address")
    fields.done()
    found.settings["hsr"] = {"prp": true_false(protocol == "prp")}
    if spec:
        found.settings["hsr"]["multicast-spec"] = str(spec)


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
    found.below.append(Below(interface_name(name, fields.at("base-iface")), fields.at("base-iface"), section, "parent"))
    return found.below[0].name
