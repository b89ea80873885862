# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""One entry of ``interfaces``: its kind, its state, what all kinds share, and what each kind has of its own.

Bonds and bridges stand in `controllers`. Here are VLAN, VXLAN, MACVLAN, MACVTAP, IPVLAN, MACsec, InfiniBand, HSR and
VRFs; offloads, virtual functions, 802.1X.
"""

from __future__ import annotations

import re

from ..image_error import ImageError
from .controllers import bond, bridge, ovs_bridge, ovs_database, ovs_interface
from .document import Fields
from .ip import loopback_stack, stack
from .profile import (
    ABSENT,
    DOWN,
    IGNORE,
    LOOPBACK,
    NAMES,
    UP,
    Below,
    Interface,
    Port,
    address,
    interface_name,
    mac_of,
    profile_name,
    true_false,
)

_U32 = 2**32 - 1
_ALIASES = {  # what ethtool's command line calls them → the kernel's name
    "rx": "rx-checksum",
    "rx-checksumming": "rx-checksum",
    "gso": "tx-generic-segmentation",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "gro": "rx-gro",
    "generic-receive-offload": "rx-gro",
    "lro": "rx-lro",
    "large-receive-offload": "rx-lro",
    "rxvlan": "rx-vlan-hw-parse",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "txvlan": "tx-vlan-hw-insert",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ntuple": "rx-ntuple-filter",
    "ntuple-filters": "rx-ntuple-filter",
    "rxhash": "rx-hashing",
    "receive-hashing": "rx-hashing",
}
_RENAMED = {  # the kernel's name → NetworkManager's, where it is another one
    "rx-checksum": "rx",
    "tx-scatter-gather": "sg",
    "tx-tcp-segmentation": "tso",
    "rx-gro": "gro",
    "tx-generic-segmentation": "gso",
    "rx-hashing": "rxhash",
    "rx-lro": "lro",
    "rx-ntuple-filter": "ntuple",
    "rx-vlan-hw-parse": "rxvlan",
    "tx-vlan-hw-insert": "txvlan",
}
_FEATURES = frozenset((
    "esp-hw-offload", "esp-tx-csum-hw-offload", "fcoe-mtu", "gro", "gso", "highdma", "hw-tc-offload",
    "l2-fwd-offload", "loopback", "lro", "macsec-hw-offload", "ntuple", "rx", "rx-all", "rx-fcs", "rx-gro-hw",
    "rx-gro-list", "rx-udp-gro-forwarding", "rx-udp_tunnel-port-offload", "rx-vlan-filter",
    "rx-vlan-stag-filter", "rx-vlan-stag-hw-parse", "rxhash", "rxvlan", "sg", "tls-hw-record",
    "tls-hw-rx-offload", "tls-hw-tx-offload", "tso", "tx", "tx-checksum-fcoe-crc", "tx-checksum-ip-generic",
    "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp", "tx-esp-segmentation", "tx-fcoe-segmentation",
    "tx-gre-csum-segmentation", "tx-gre-segmentation", "tx-gso-list", "tx-gso-partial", "tx-gso-robust",
    "tx-ipxip4-segmentation", "tx-ipxip6-segmentation", "tx-nocache-copy", "tx-scatter-gather-fraglist",
    "tx-sctp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation",
    "tx-tunnel-remcsum-segmentation", "tx-udp-segmentation", "tx-udp_tnl-csum-segmentation",
    "tx-udp_tnl-segmentation", "tx-vlan-stag-hw-insert", "txvlan",
))  # fmt: skip
_COALESCE = (
    "pkt-rate-high", "pkt-rate-low", "rx-frames", "rx-frames-high", "rx-frames-irq", "rx-frames-low", "rx-usecs",
    "rx-usecs-high", "rx-usecs-irq", "rx-usecs-low", "sample-interval", "stats-block-usecs", "tx-frames",
    "tx-frames-high", "tx-frames-irq", "tx-frames-low", "tx-usecs", "tx-usecs-high", "tx-usecs-irq", "tx-usecs-low",
)  # fmt: skip
_METHODS = ("leap", "md5", "tls", "peap", "ttls", "fast", "pwd")
_INNER = ("pap", "mschap", "mschapv2", "gtc", "otp", "md5", "tls", "chap")
_PATH = re.compile(r"/[!-:<-~]+\Z")  # a semicolon would end it
HIDDEN = "<_password_hid_by_nmstate>"


def ethtool(fields: Fields, found: Interface) -> None:
    settings: dict[str, str] = {}
    pause = fields.mapping("pause")
    if pause is not None:
        auto, given = pause.flag_text("autoneg"), {"pause-" + key: pause.flag_text(key) for key in ("rx", "tx")}
        pause.done()
        if not auto and any(given.values()):
            raise pause.missing("autoneg", "rx and tx need autoneg: false")
        settings["pause-autoneg"] = auto
        if auto == "false":
            settings.update(given)
    feature = fields.mapping("feature")
    if feature is not None:
        for given_name in feature.names():
            name = _ALIASES.get(given_name, given_name)
            name = _RENAMED.get(name, name)
            if name not in _FEATURES:
                raise ImageError(f"{feature.at(given_name)} is no feature that NetworkManager can set")
            value = feature.flag_text(given_name)
            if value:
                settings["feature-" + name] = value
    coalesce = fields.mapping("coalesce")
    if coalesce is not None:
        for key in ("adaptive-rx", "adaptive-tx"):
            settings["coalesce-" + key] = coalesce.flag_text(key, "1", "0")
        settings.update(_numbers(coalesce, "coalesce-", _COALESCE))
    ring = fields.mapping("ring")
    if ring is not None:
        ring.ignore("rx-max", "rx-mini-max", "rx-jumbo-max", "tx-max")
        settings.update(_numbers(ring, "ring-", ("rx", "rx-jumbo", "rx-mini", "tx")))
    fields.done()
    if any(settings.values()):
        found.settings["ethtool"] = settings


def _numbers(fields: Fields, prefix: str, keys: tuple[str, ...]) -> dict[str, str]:
    numbers = {prefix + key: fields.number_text(key, 0, _U32) for key in keys}
    fields.done()
    return numbers


def sriov(fields: Fields, found: Interface) -> None:
    """The section ``sr-iov`` of an ethernet interface."""
    total, probe = fields.number("total-vfs", 0, 65535), fields.flag_text("drivers-autoprobe", "1", "0")
    functions: dict[int, str] = {}
    for one in fields.mappings("vfs"):
        number = one.needed_number("id", 0, 65534)
        if number in functions:
            raise one.wrong("id", "is given twice")
        if total is not None and number >= total:
            raise one.wrong("id", f"is not below the total-vfs of {total}")
        functions[number] = _function(one)
    fields.done()
    if total == 0:
        return
    if functions and total is None:
        total = max(functions) + 1
    settings = {"total-vfs": "" if total is None else str(total), "autoprobe-drivers": probe}
    settings.update({f"vf.{number}": text for number, text in functions.items()})
    if any(settings.values()):
        found.settings["sriov"] = settings


def _function(fields: Fields) -> str:
    """One virtual function as NetworkManager lists its properties."""
    fields.ignore("iface-name")
    given = {"mac": mac_of(fields, "mac-address")}
    given.update({key: fields.flag_text(key) for key in ("spoof-check", "trust")})
    given.update({key: fields.number_text(key, 0, _U32) for key in ("min-tx-rate", "max-tx-rate")})
    words = [f"{key}={text}" for key, text in given.items() if text]
    vlan, priority = fields.number("vlan-id", 0, 4095), fields.number("qos", 0, 7)
    protocol = fields.choice("vlan-proto", ("802.1q", "802.1ad")) or "802.1q"
    fields.done()
    if protocol == "802.1ad" and not vlan and not priority:
        raise fields.wrong("vlan-proto", "needs vlan-id or qos")
    if vlan is not None:
        words.append(f"vlans={vlan}.{priority or 0}.{'q' if protocol == '802.1q' else 'ad'}")
    return " ".join(words)


def ieee8021x(fields: Fields, found: Interface) -> None:
    """The section ``802.1x``. Its passwords are in the profile, which only root reads, and in no message."""
    methods = fields.texts("eap-methods")
    for one in methods:
        if one not in _METHODS:
            raise fields.wrong("eap-methods", f"has {one!a}, which is not one of {', '.join(_METHODS)}")
    if not methods:
        raise fields.missing("eap-methods", f"give one or more of {', '.join(_METHODS)}")
    settings = {"eap": "".join(one + ";" for one in methods), "identity": fields.text("identity") or ""}
    for key in ("ca-cert", "client-cert", "private-key"):
        path = fields.text(key)
        if path and not _PATH.match(path):
            raise fields.wrong(key, "is no absolute path of a file in the live system")
        settings[key] = path or ""
    for key in ("private-key-password", "password"):
        secret = fields.secret(key)
        if secret == HIDDEN:
            raise ImageError(f"{fields.at(key)} was hidden by nmstatectl; give the password itself")
        settings[key] = secret or ""
    settings["phase2-auth"] = fields.choice("phase2-auth", _INNER) or ""
    fields.done()
    found.settings["802-1x"] = settings


_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]+")
_LAYERS = ("l2", "l3", "l3s")  # NetworkManager counts from 1
_VALIDATION, _OFFLOAD = ("disabled", "check", "strict"), ("off", "phy", "mac")
_MODES = ("vepa", "bridge", "private", "passthru", "source")  # NetworkManager counts from 1


def vlan(fields: Fields, found: Interface) -> None:
    base = _base(fields, found, "vlan", needed=True)
    number = fields.needed_number("id", 0, 4094)
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
    base = _base(fields, found, "vxlan", needed=False)
    number, port = fields.needed_number("id", 0, 2**24 - 1), fields.number_text("destination-port", 1, 65535)
    ends = {key: fields.text(key) for key in ("local", "remote")}
    settings = {"id": str(number), "learning": fields.flag_text("learning"), "destination-port": port}
    settings.update({key: str(address(text, fields.at(key))) for key, text in ends.items() if text})
    fields.done()
    found.same = (f"VXLAN {number} of {base or 'any'}", str(ends))
    found.settings["vxlan"] = settings


def macvlan(fields: Fields, found: Interface) -> None:
    """The sections ``mac-vlan`` and ``mac-vtap``."""
    _base(fields, found, "macvlan", needed=True)
    mode, promiscuous = fields.choice("mode", _MODES), fields.flag_text("promiscuous")
    fields.done()
    if mode is None:
        raise fields.missing("mode", f"give one of {', '.join(_MODES)}")
    if promiscuous == "false" and mode != "passthru":
        raise fields.wrong("promiscuous", "has a meaning in mode passthru only")
    tap = true_false(found.kind == "mac-vtap")
    found.settings["macvlan"] = {"mode": str(_MODES.index(mode) + 1), "tap": tap, "promiscuous": promiscuous}


def ipvlan(fields: Fields, found: Interface) -> None:
    _base(fields, found, "ipvlan", needed=True)
    mode = fields.choice("mode", _LAYERS) or _LAYERS[0]
    private, vepa = fields.flag_text("private"), fields.flag_text("vepa")
    fields.done()
    if private == vepa == "true":
        raise ImageError(f"{fields.at('private')} and vepa exclude each other")
    found.settings["ipvlan"] = {"mode": str(_LAYERS.index(mode) + 1), "private": private, "vepa": vepa}


def macsec(fields: Fields, found: Interface) -> None:
    """The section ``macsec``. Its key is in the profile, which only root reads, and in no message."""
    base = _base(fields, found, "macsec", needed=True)
    settings = {"mode": "0", "encrypt": fields.flag_text("encrypt"), "send-sci": fields.flag_text("send-sci")}
    port = fields.number("port", 0, 65534)
    for option, known in (("validation", _VALIDATION), ("offload", _OFFLOAD)):
        word = fields.choice(option, known)
        settings[option] = "" if word is None else str(known.index(word))
    key, name = fields.secret("mka-cak"), fields.text("mka-ckn")
    fields.done()
    if not key or not name:
        raise fields.missing("mka-ckn" if key else "mka-cak", "MACsec needs mka-cak and mka-ckn")
    if key == HIDDEN:
        raise ImageError(f"{fields.at('mka-cak')} was hidden by nmstatectl; give the key itself")
    if not _HEXADECIMAL.fullmatch(key) or len(key) != 32:
        raise ImageError(f"{fields.at('mka-cak')} is no key of 32 hexadecimal digits")
    if not _HEXADECIMAL.fullmatch(name) or len(name) % 2 or len(name) > 64:
        raise fields.wrong("mka-ckn", "is no name of 2 to 64 hexadecimal digits, an even number of them")
    found.same = (f"MACsec {port or 1} of {base}",)
    settings.update({"mka-cak": key, "mka-ckn": name, "port": str(port) if port else ""})
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
    found.settings["hsr"] = {"prp": true_false(protocol == "prp"), "multicast-spec": str(spec) if spec else ""}


def infiniband(fields: Fields, found: Interface) -> None:
    base = _base(fields, found, "infiniband", needed=False)
    mode, key = fields.choice("mode", ("datagram", "connected")), fields.number("pkey", 0, 65535)
    fields.done()
    if mode is None:
        raise fields.missing("mode", "give datagram or connected")
    settings = {"transport-mode": mode, "mtu": "" if found.mtu is None else str(found.mtu)}
    if key is not None and key != 65535:
        if base is None:
            raise fields.missing("base-iface", "pkey needs it")
        settings["p-key"] = str(key)
    elif base is not None:
        raise fields.missing("pkey", "base-iface needs it")
    found.settings["infiniband"] = settings


def vrf(fields: Fields, found: Interface) -> None:
    found.table = fields.needed_number("route-table-id", 1, 2**32 - 1)
    key = fields.one_of("port", "ports")
    if key is not None:
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


_OWN_SECTION = {
    "bond": "link-aggregation", "vlan": "vlan", "linux-bridge": "bridge", "veth": "veth", "infiniband": "infiniband",
    "vxlan": "vxlan", "mac-vlan": "mac-vlan", "mac-vtap": "mac-vtap", "vrf": "vrf", "ovs-bridge": "bridge",
    "macsec": "macsec", "hsr": "hsr", "ipvlan": "ipvlan",
}  # fmt: skip
_PROFILES = {"ovs-bridge": "-br", "ovs-interface": "-if"}  # a bridge and an interface in it often have one name
_READERS = {
    "bond": bond, "linux-bridge": bridge, "vlan": vlan, "vxlan": vxlan, "mac-vlan": macvlan, "mac-vtap": macvlan,
    "infiniband": infiniband, "vrf": vrf, "ovs-bridge": ovs_bridge, "macsec": macsec, "hsr": hsr, "ipvlan": ipvlan,
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
    found.ovs_data = ovs_database(fields)
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
        raise fields.missing(identifier, f"identifier: {identifier} needs it")
    found.identity = identifier, value
    if identifier == "pci-address":
        found.settings["match"] = {"path": f"pci-{value};"}


def _kind(fields: Fields) -> str:
    given = fields.text("type")
    sections = [kind for kind, key in _OWN_SECTION.items() if fields.raw(key) is not None]
    if given is None:
        if sections:
            section = _OWN_SECTION[sections[0]]
            raise fields.missing("type", f"it is {sections[0]} by its section {section}")
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
    wired["accept-all-mac-addresses"] = fields.flag_text("accept-all-mac-addresses", "1", "0")
    link = fields.mapping("ethernet")
    if link is not None:
        if found.kind not in ("ethernet", "veth"):
            raise ImageError(f"{link.path} has no meaning for type {found.kind}")
        wired.update(_link(link, found))
    if found.kind == "loopback" and wired.pop("accept-all-mac-addresses") == "1":
        raise ImageError(f"{fields.at('accept-all-mac-addresses')} has no meaning for type loopback")
    if any(wired.values()):
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
        found.section("connection")["lldp"] = lldp.flag_text("enabled", "1", "0")
        lldp.ignore("neighbors")
        lldp.done()
    text = fields.text("description")
    if text and text.strip():
        found.settings["user"] = {"nmstate.interface.description": text.strip()}


def _link(fields: Fields, found: Interface) -> dict[str, str]:
    negotiate, speed = fields.flag_text("auto-negotiation"), fields.number_text("speed", 1, 10_000_000)
    duplex = fields.choice("duplex", ("full", "half")) or ""
    functions = fields.mapping("sr-iov")
    if functions is not None:
        sriov(functions, found)
    fields.refuse("fec", "set it in the installed system")
    fields.done()
    if negotiate != "false":
        return {"auto-negotiate": negotiate}
    if bool(speed) != bool(duplex):
        raise ImageError(f"{fields.path}: without auto-negotiation, give speed and duplex or neither")
    return {"auto-negotiate": negotiate, "speed": speed, "duplex": duplex}


def _wait(fields: Fields, found: Interface) -> None:
    given = fields.choice("wait-ip", tuple(_MAY_FAIL))
    if given is not None:
        for one, may_fail in zip((found.v4, found.v6), _MAY_FAIL[given]):
            one.settings["may-fail"] = true_false(may_fail)


def _specific(fields: Fields, found: Interface) -> None:
    """The section that only this kind has."""
    fields.ignore(*_OWN_SECTION.values())
    if found.kind == "ovs-interface":
        ovs_interface(fields, found)
    key = _OWN_SECTION.get(found.kind)
    section = fields.mapping(key) if key else None
    if key and section is None and found.kind in ("linux-bridge", "ovs-bridge"):
        section = Fields({}, fields.at(key))
    if key and section is None and found.state not in (ABSENT, IGNORE):
        raise fields.missing(key, f"type {found.kind} needs it")
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
