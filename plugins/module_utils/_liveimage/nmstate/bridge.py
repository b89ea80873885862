# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Linux bridges: options, spanning tree, VLAN filtering and ports."""

from __future__ import annotations

from ..errors import ImageError
from .bond import port_list, vlan_range
from .document import Fields
from .profile import Interface, Port, interface_name, mac_of, true_false

_U32, _CENTISECONDS = 2**32 - 1, 2**63 - 1
_NUMBERS = {  # NMState's key → NetworkManager's, limits
    "hash-max": ("multicast-hash-max", 1, _U32),
    "mac-ageing-time": ("ageing-time", 0, 1_000_000),
    "multicast-last-member-count": ("multicast-last-member-count", 0, _U32),
    "multicast-last-member-interval": ("multicast-last-member-interval", 0, _CENTISECONDS),
    "multicast-membership-interval": ("multicast-membership-interval", 0, _CENTISECONDS),
    "multicast-querier-interval": ("multicast-querier-interval", 0, _CENTISECONDS),
    "multicast-query-interval": ("multicast-query-interval", 0, _CENTISECONDS),
    "multicast-query-response-interval": ("multicast-query-response-interval", 0, _CENTISECONDS),
    "multicast-startup-query-count": ("multicast-startup-query-count", 0, _U32),
    "multicast-startup-query-interval": ("multicast-startup-query-interval", 0, _CENTISECONDS),
}
_FLAGS = ("multicast-querier", "multicast-query-use-ifaddr", "multicast-snooping")
_STP = {"forward-delay": (2, 30), "hello-time": (1, 10), "max-age": (6, 40), "priority": (0, 65535)}


def bridge(fields: Fields, found: Interface) -> None:
    """A bridge by its section ``bridge``."""
    settings = found.section("bridge")
    options = fields.mapping("options")
    if options is not None:
        _options(options, settings)
    found.ports = port_list(fields, _port)
    filtering = any("vlans" in port.settings for port in found.ports or [])
    if found.ports is not None:
        settings["vlan-filtering"] = true_false(filtering)
    own = fields.mapping("vlan")
    if own is not None:
        settings["vlans"] = _vlans(own)
        settings["vlan-filtering"] = "true"
    fields.done()


def _options(fields: Fields, settings: dict[str, str]) -> None:
    for key, (name, low, high) in _NUMBERS.items():
        number = fields.number(key, low, high)
        if number is not None:
            settings[name] = str(number)
    size = int(settings.get("multicast-hash-max", "1"))
    if size & (size - 1):
        raise fields.wrong("hash-max", "is no power of two")
    for key in _FLAGS:
        value = fields.flag(key)
        if value is not None:
            settings[key] = true_false(value)
    for key in ("group-forward-mask", "group-fwd-mask"):
        mask = fields.number(key, 0, 65535)
        if mask is not None:
            if mask & 7:
                raise fields.wrong(key, "has one of the three lowest bits, which the kernel refuses")
            settings["group-forward-mask"] = str(mask)
    group = mac_of(fields, "group-addr", group=True)
    if group is not None:
        if not group.startswith("01:80:C2:00:00:0") or group[-1] in "123":
            raise fields.wrong("group-addr", "is not 01:80:C2:00:00:0X with X other than 1, 2 and 3")
        settings["group-address"] = group
    router = fields.choice("multicast-router", ("disabled", "auto", "enabled"), numbered=True)
    if router is not None:
        settings["multicast-router"] = router
    protocol = fields.choice("vlan-protocol", ("802.1q", "802.1ad"))
    if protocol is not None:
        settings["vlan-protocol"] = "802.1Q" if protocol == "802.1q" else protocol
    default = fields.number("vlan-default-pvid", 0, 4094)
    if default is not None:
        settings["vlan-default-pvid"] = str(default)
    fields.ignore("gc-timer", "hello-timer", "hash-elasticity")
    stp = fields.mapping("stp")
    if stp is not None:
        enabled = stp.flag("enabled")
        if enabled is not None:
            settings["stp"] = true_false(enabled)
        for key, (low, high) in _STP.items():
            number = stp.number(key, low, high)
            if number is not None:
                settings[key] = str(number)
        stp.done()
    fields.done()


def _port(fields: Fields) -> Port:
    found = Port(interface_name(fields.needed("name"), fields.at("name")), fields.path)
    hairpin = fields.flag("stp-hairpin-mode")
    if hairpin is not None:
        found.settings["hairpin-mode"] = true_false(hairpin)
    for key, name, most in (("stp-path-cost", "path-cost", 65535), ("stp-priority", "priority", 63)):
        number = fields.number(key, 0, most)
        if number is not None:
            found.settings[name] = str(number)
    vlan = fields.mapping("vlan")
    if vlan is not None:
        vlans = _vlans(vlan)
        if vlans:
            found.settings["vlans"] = vlans
    fields.done()
    return found


def _vlans(fields: Fields) -> str:
    """What may pass a port, as NetworkManager lists it."""
    mode = fields.choice("mode", ("access", "trunk"))
    tag, native = fields.number("tag", 0, 4094), fields.flag("enable-native")
    trunk = [vlan_range(one, 1, 4094) for one in fields.mappings("trunk-tags")]
    fields.done()
    if mode is None and (tag is not None or native is not None or trunk):
        raise ImageError(f"{fields.at('mode')} is missing; give access or trunk")
    if mode == "access" and (trunk or native):
        raise ImageError(f"{fields.path}: access ports have one tag, neither trunk-tags nor enable-native")
    if mode == "trunk" and tag is not None and not native:
        raise fields.wrong("tag", "of a trunk needs enable-native: true")
    if mode == "trunk" and native and not tag:
        raise ImageError(f"{fields.at('tag')} is missing; enable-native needs it")
    ranges = [(low, high, "") for low, high in trunk]
    if tag:
        ranges.append((tag, tag, " pvid untagged"))
    ranges.sort()
    for one, other in zip(ranges, ranges[1:]):
        if other[0] <= one[1]:
            raise ImageError(f"{fields.path}: VLAN {other[0]} is given twice")
    return ",".join((f"{low}" if low == high else f"{low}-{high}") + more for low, high, more in ranges)
