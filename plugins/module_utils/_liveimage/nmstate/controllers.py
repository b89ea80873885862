# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Bonds (modes, options, what excludes what), Linux bridges (options, spanning tree, VLANs, ports), Open vSwitch.

A bridge of Open vSwitch has a profile for each of its ports. It is no interface of the kernel, so an interface may have
its name. In the table of interfaces such bridges and ports have keys that no interface can have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from ..image_error import ImageError
from .document import Fields
from .profile import Interface, OvsPort, Port, host_address, interface_name, mac_of, true_false

MODES = ("balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb")
_WORDS = {
    "ad_select": ("stable", "bandwidth", "count"),
    "arp_all_targets": ("any", "all"),
    "arp_validate": ("none", "active", "backup", "all", "filter", "filter_active", "filter_backup"),
    "fail_over_mac": ("none", "active", "follow"),
    "lacp_rate": ("slow", "fast"),
    "primary_reselect": ("always", "better", "failure"),
    "xmit_hash_policy": ("layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"),
}
_NUMBERS = {
    "ad_actor_sys_prio": (1, 65535),
    "ad_user_port_key": (0, 1023),
    "arp_interval": (0, 2**31 - 1),
    "arp_missed_max": (0, 255),
    "downdelay": (0, 2**31 - 1),
    "lp_interval": (1, 2**31 - 1),
    "miimon": (0, 2**31 - 1),
    "min_links": (0, 2**31 - 1),
    "num_grat_arp": (0, 255),
    "num_unsol_na": (0, 255),
    "packets_per_slave": (0, 65535),
    "resend_igmp": (0, 255),
    "updelay": (0, 2**31 - 1),
}
_SLAVES = ("dropped", "delivered")  # what the kernel also takes for 0 and 1 of all_slaves_active
_ONLY_IN = {
    "ad_actor_sys_prio": ("802.3ad",),
    "ad_actor_system": ("802.3ad",),
    "ad_user_port_key": ("802.3ad",),
    "lacp_rate": ("802.3ad",),
    "packets_per_slave": ("balance-rr",),
    "primary": ("active-backup", "balance-tlb", "balance-alb"),
    "tlb_dynamic_lb": ("balance-tlb", "balance-alb"),
    "arp_interval": ("balance-rr", "active-backup", "balance-xor", "broadcast"),
    "arp_validate": ("balance-rr", "active-backup", "balance-xor", "broadcast"),
}
_DEFAULTS = {  # what nmstatectl shows of any bond, whether its mode uses it or not
    "ad_actor_sys_prio": "65535",
    "ad_user_port_key": "0",
    "lacp_rate": "slow",
    "packets_per_slave": "1",
    "tlb_dynamic_lb": "1",
}
_USUAL_MISSED = "2"
_NO_MAC = "00:00:00:00:00:00"
_NEEDS = {"updelay": "miimon", "downdelay": "miimon", "arp_validate": "arp_interval", "arp_ip_target": "arp_interval"}


def bond(fields: Fields, found: Interface) -> None:
    """A bond by its section ``link-aggregation``."""
    mode = fields.choice("mode", MODES, numbered=True)
    if mode is None:
        raise fields.missing("mode", f"give one of {', '.join(MODES)}")
    found.ports = port_list(fields, _named)
    _port_settings(fields, found)
    options = fields.mapping("options")
    found.settings["bond"] = {"mode": mode}
    if options is not None:
        found.settings["bond"].update(_options(options, mode))
        found.primary = found.settings["bond"].get("primary")
        if found.mac and mode == "active-backup" and found.settings["bond"].get("fail_over_mac") == "active":
            raise options.wrong("fail_over_mac", "leaves the bond without a MAC address of its own, yet one is given")
    fields.done()


def _named(fields: Fields) -> Port:
    """A port that is only named."""
    name = interface_name(fields.needed("name"), fields.at("name"))
    fields.done()
    return Port(name, fields.path)


def _ranges(ranges: Iterable[tuple[int, int, str]]) -> str:
    """First and last VLANs, and what else is said of each, as NetworkManager lists them."""
    return ",".join((f"{low}" if low == high else f"{low}-{high}") + more for low, high, more in ranges)


def vlan_range(fields: Fields, least: int, most: int) -> tuple[int, int]:
    """The first and the last VLAN of an entry of ``trunk-tags``, which has an ``id`` or an ``id-range``."""
    single, span = fields.number("id", least, most), fields.mapping("id-range")
    fields.done()
    if (single is None) == (span is None):
        raise ImageError(f"{fields.path}: give id or id-range")
    if span is None:
        return single or 0, single or 0
    low, high = span.number("min", least, most), span.number("max", least, most)
    span.done()
    if low is None or high is None or low > high:
        raise ImageError(f"{span.path}: min and max must both be given, min the smaller one")
    return low, high


def port_list(fields: Fields, read: Callable[[Fields], Port]) -> list[Port] | None:
    """The ports of a controller, by name or as mappings; None when there is no such list."""
    key = fields.one_of("port", "ports")
    if key is None:
        return None
    found: list[Port] = []
    for at, one in enumerate(fields.entries(key)):
        path = f"{fields.at(key)}[{at}]"
        port = read(Fields({"name": one} if isinstance(one, (str, int)) else one, path))
        port.path = path
        if any(other.name == port.name for other in found):
            raise ImageError(f"{path}: {port.name} is listed twice")
        found.append(port)
    return found


def _port_settings(fields: Fields, found: Interface) -> None:
    """Priorities and queues; versions of NetworkManager without them read a port where none of both is set."""
    listed = found.ports
    for one in fields.mappings("ports-config"):
        name = one.needed("name")
        if listed is None:  # then these are the ports
            found.ports = [*(found.ports or []), Port(interface_name(name, one.at("name")), one.path)]
        ports = [port for port in found.ports or [] if port.name == name]
        if not ports:
            raise one.wrong("name", "is no port of this bond")
        priority, queue = one.number("priority", -(2**31), 2**31 - 1), one.number("queue-id", 0, 65535)
        one.done()
        if priority:
            ports[0].settings["prio"] = str(priority)
        if queue or (priority and queue is not None):
            ports[0].settings["queue-id"] = str(queue)


def _options(fields: Fields, mode: str) -> dict[str, str]:
    found: dict[str, str | None] = {key: fields.choice(key, words, numbered=True) for key, words in _WORDS.items()}
    found.update({key: fields.number_text(key, *limits) for key, limits in _NUMBERS.items()})
    slaves = fields.raw("all_slaves_active")
    if slaves in _SLAVES:
        found["all_slaves_active"] = str(_SLAVES.index(slaves))
    else:
        found["all_slaves_active"] = fields.flag_text("all_slaves_active", "1", "0")
    found.update({key: fields.flag_text(key, "1", "0") for key in ("tlb_dynamic_lb", "use_carrier")})
    slb = fields.one_of("balance_slb", "balance-slb")
    found["balance-slb"] = fields.flag_text(slb, "1", "0") if slb else None
    unset = fields.raw("ad_actor_system") == _NO_MAC
    found["ad_actor_system"] = None if unset else mac_of(fields, "ad_actor_system")
    found["arp_ip_target"] = _targets(fields)
    primary = fields.text("primary")
    found["primary"] = interface_name(primary, fields.at("primary")) if primary else None
    fields.done()
    for key, default in _DEFAULTS.items():
        if found[key] == default and mode not in _ONLY_IN[key]:
            found[key] = None
    if found["arp_missed_max"] == _USUAL_MISSED:  # older versions of NetworkManager do not know the option
        found["arp_missed_max"] = None
    given = {key: value for key, value in found.items() if value}
    _check(fields, given, mode)
    return given


def _targets(fields: Fields) -> str | None:
    text = fields.text("arp_ip_target")
    if not text:
        return None
    found = [str(host_address(one, fields.at("arp_ip_target"), 4)) for one in re.split(r"[, ]+", text) if one]
    if len(found) > 16:
        raise fields.wrong("arp_ip_target", f"has {len(found)} addresses, 16 is the most")
    return ",".join(found)


def _check(fields: Fields, given: dict[str, str], mode: str) -> None:
    """What NetworkManager or the kernel would refuse once the host has booted."""
    on = {key for key, value in given.items() if value != "0"}
    for key in sorted(on):
        allowed = _ONLY_IN.get(key, MODES)
        if mode not in allowed and not (key == "arp_validate" and given[key] == "none"):
            raise fields.wrong(key, f"has no meaning in mode {mode}, only in {', '.join(allowed)}")
    for key, other in _NEEDS.items():
        if key in on and other not in on and not (key == "arp_validate" and given[key] == "none"):
            raise ImageError(f"{fields.at(key)} needs {other}, which is not given")
    if "miimon" in on and "arp_interval" in on:
        raise fields.wrong("arp_interval", "and miimon exclude each other")
    if "arp_interval" in on and "arp_ip_target" not in on:
        raise ImageError(f"{fields.at('arp_interval')} needs arp_ip_target, which is not given")
    if "num_grat_arp" in given and given.get("num_unsol_na", given["num_grat_arp"]) != given["num_grat_arp"]:
        raise fields.wrong("num_unsol_na", "and num_grat_arp are one setting; give them the same value")
    if "balance-slb" in on and (mode != "balance-xor" or given.get("xmit_hash_policy") != "vlan+srcmac"):
        key = "balance_slb" if fields.raw("balance_slb") is not None else "balance-slb"
        raise fields.wrong(key, "needs mode balance-xor and xmit_hash_policy vlan+srcmac")


_U32, _CENTISECONDS = 2**32 - 1, 2**63 - 1
_BRIDGE_NUMBERS = {  # NMState's key → NetworkManager's, limits
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
_ROUTER = ("disabled", "auto", "enabled")
_BRIDGE_FLAGS = ("multicast-querier", "multicast-query-use-ifaddr", "multicast-snooping")
_STP = {"forward-delay": (2, 30), "hello-time": (1, 10), "max-age": (6, 40), "priority": (0, 65535)}


def bridge(fields: Fields, found: Interface) -> None:
    """A bridge by its section ``bridge``."""
    settings = found.section("bridge")
    options = fields.mapping("options")
    if options is not None:
        _bridge_options(options, settings)
    found.ports = port_list(fields, _port)
    filtering = any("vlans" in port.settings for port in found.ports or [])
    if found.ports is not None:
        settings["vlan-filtering"] = true_false(filtering)
    own = fields.mapping("vlan")
    if own is not None:
        settings["vlans"] = _vlans(own)
        settings["vlan-filtering"] = "true"
    fields.done()


def _bridge_options(fields: Fields, settings: dict[str, str]) -> None:
    settings.update({name: fields.number_text(key, low, high) for key, (name, low, high) in _BRIDGE_NUMBERS.items()})
    size = int(settings["multicast-hash-max"] or "1")
    if size & (size - 1):
        raise fields.wrong("hash-max", "is no power of two")
    settings.update({key: fields.flag_text(key) for key in _BRIDGE_FLAGS})
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
    settings["multicast-router"] = fields.choice("multicast-router", _ROUTER, numbered=True) or ""
    protocol = fields.choice("vlan-protocol", ("802.1q", "802.1ad")) or ""
    settings["vlan-protocol"] = "802.1Q" if protocol == "802.1q" else protocol
    settings["vlan-default-pvid"] = fields.number_text("vlan-default-pvid", 0, 4094)
    fields.ignore("gc-timer", "hello-timer", "hash-elasticity")
    stp = fields.mapping("stp")
    if stp is not None:
        settings["stp"] = stp.flag_text("enabled")
        settings.update({key: stp.number_text(key, *limits) for key, limits in _STP.items()})
        stp.done()
    fields.done()


def _port(fields: Fields) -> Port:
    found = Port(interface_name(fields.needed("name"), fields.at("name")), fields.path)
    found.settings["hairpin-mode"] = fields.flag_text("stp-hairpin-mode")
    found.settings["path-cost"] = fields.number_text("stp-path-cost", 0, 65535)
    found.settings["priority"] = fields.number_text("stp-priority", 0, 63)
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
        raise fields.missing("mode", "give access or trunk")
    if mode == "access" and (trunk or native):
        raise ImageError(f"{fields.path}: access ports have one tag, neither trunk-tags nor enable-native")
    if mode == "trunk" and tag is not None and not native:
        raise fields.wrong("tag", "of a trunk needs enable-native: true")
    if mode == "trunk" and native and not tag:
        raise fields.missing("tag", "enable-native needs it")
    ranges = [(low, high, "") for low, high in trunk]
    if tag:
        ranges.append((tag, tag, " pvid untagged"))
    ranges.sort()
    for one, other in zip(ranges, ranges[1:]):
        if other[0] <= one[1]:
            raise ImageError(f"{fields.path}: VLAN {other[0]} is given twice")
    return _ranges(ranges)


_OVS_NEEDS = "%s: Open vSwitch and NetworkManager's plugin for it have to be in the live system"
_OVS_MODES = {  # of a bond → what NetworkManager's port says
    "active-backup": {"lacp": "off", "bond-mode": "active-backup"},
    "balance-slb": {"lacp": "off", "bond-mode": "balance-slb"},
    "balance-tcp": {"lacp": "active", "bond-mode": "balance-tcp"},
    "lacp": {"lacp": "active"},
}
_OVS_KEY = re.compile(r"[A-Za-z0-9_./+-]{1,100}\Z")


def ovs_bridge(fields: Fields, found: Interface) -> None:
    """An ovs-bridge by its section ``bridge``."""
    settings = found.section("ovs-bridge")
    options = fields.mapping("options")
    if options is not None:
        stp = options.raw("stp")
        if isinstance(stp, Mapping):
            own = Fields(stp, options.at("stp"))
            settings["stp-enable"] = own.flag_text("enabled")
            own.done()
        else:
            settings["stp-enable"] = options.flag_text("stp")
        settings["rstp-enable"] = options.flag_text("rstp")
        settings["mcast-snooping-enable"] = options.flag_text("mcast-snooping-enable")
        settings["fail-mode"] = options.choice("fail-mode", ("", "secure", "standalone")) or ""
        settings["datapath-type"] = options.choice("datapath", ("", "system", "netdev")) or ""
        options.done()
    fields.ignore("allow-extra-patch-ports")
    ports: list[OvsPort] = []

    def read(one: Fields) -> Port:
        ports.append(_ovs_port(one))
        return Port(ports[-1].name, one.path)

    found.ports = port_list(fields, read)
    fields.done()
    found.ovs_ports = ports


def _ovs_port(fields: Fields) -> OvsPort:
    name = interface_name(fields.needed("name"), fields.at("name"))
    found = OvsPort(name, fields.path, [Port(name, fields.path)])
    link = fields.mapping("link-aggregation")
    if link is not None:
        mode = link.choice("mode", tuple(_OVS_MODES))
        found.settings.update(_OVS_MODES[mode] if mode else {})
        for key in ("bond-updelay", "bond-downdelay"):
            found.settings[key] = link.number_text(key, 0, _U32)
        found.members = port_list(link, _named) or []
        if len(found.members) < 2:
            raise ImageError(f"{link.path}: a bond of Open vSwitch has two ports or more")
        found.data = ovs_database(link)
        link.done()
    vlan = fields.mapping("vlan")
    if vlan is not None:
        found.settings["tag"] = vlan.number_text("tag", 0, 4095)
        modes = ("access", "trunk", "native-tagged", "native-untagged")
        found.settings["vlan-mode"] = vlan.choice("mode", modes) or ""
        trunks = sorted(vlan_range(one, 0, 4095) for one in vlan.mappings("trunk-tags"))
        found.settings["trunks"] = _ranges((low, high, "") for low, high in trunks)
        vlan.done()
    fields.done()
    return found


def ovs_interface(fields: Fields, found: Interface) -> None:
    """What only an ovs-interface has: it is internal, half of a patch, or a card of DPDK."""
    patch, dpdk = fields.mapping("patch"), fields.mapping("dpdk")
    if patch is not None and dpdk is not None:
        raise ImageError(f"{patch.path} and {dpdk.path} exclude each other")
    kind = "internal"
    if patch is not None:
        kind = "patch"
        found.settings["ovs-patch"] = {"peer": interface_name(patch.needed("peer"), patch.at("peer"))}
        patch.done()
    if dpdk is not None:
        kind = "dpdk"
        settings = {"devargs": dpdk.needed("devargs")}
        keys = [key for key in ("rx-queue", "n_rxq") if dpdk.raw(key) is not None]
        if len(keys) == 2:
            raise ImageError(f"{dpdk.at(keys[0])} and {keys[1]} are the same; give one")
        settings["n-rxq"] = dpdk.number_text(keys[0], 0, _U32) if keys else ""
        for key in ("n_rxq_desc", "n_txq_desc"):
            settings[key.replace("_", "-")] = dpdk.number_text(key, 0, _U32)
        dpdk.done()
        found.settings["ovs-dpdk"] = settings
    found.settings["ovs-interface"] = {"type": kind}


def ovs_database(fields: Fields) -> dict[str, dict[str, str]]:
    """The section ``ovs-db`` of an interface or a bond: sections of the keyfile."""
    given = fields.mapping("ovs-db")
    found: dict[str, dict[str, str]] = {}
    if given is None:
        return found
    for key, section in (("external_ids", "ovs-external-ids"), ("other_config", "ovs-other-config")):
        values = given.mapping(key)
        if values is None:
            continue
        texts: dict[str, str] = {}
        for name in values.names():
            if not _OVS_KEY.match(name):
                raise ImageError(f"{values.path}: {name[:60]!a} is no key that NetworkManager takes")
            value = values.raw(name)
            text = true_false(value) if isinstance(value, bool) else values.text(name)
            if text:
                texts["data." + name] = text
        if texts:
            found[section] = texts
    given.done()
    return found


def attach_ovs(found: dict[str, Interface], controller: Interface) -> list[str]:
    """Make a profile for each port of a bridge, and ports of their interfaces; what the user should know."""
    warnings = [_OVS_NEEDS % controller.path]
    if controller.v4.enabled or controller.v6.enabled:
        raise ImageError(f"{controller.path} is an ovs-bridge and has addresses; give them to an ovs-interface")
    for port in controller.ovs_ports:
        one = Interface(port.name, "ovs-port", port.path, port.name + "-port", controller.state)
        one.controller, one.has_ip = controller.key, False
        one.section("connection").update({"master": controller.name, "slave-type": "ovs-bridge"})
        one.settings["ovs-port"] = port.settings
        one.settings.update(port.data)
        if one.key in found:
            raise ImageError(f"{port.path}: {port.name} is a port of two bridges")
        found[one.key] = one
        for member in port.members:
            inner = found.get(member.name)
            if inner is None:
                continue
            if inner.kind in ("vrf", "linux-bridge"):
                raise ImageError(f"{member.path}: {inner.name} ({inner.kind}) cannot be a port of an ovs-bridge")
            if inner.controller is not None:
                raise ImageError(f"{member.path}: {inner.name} is already a port of {inner.controller}")
            inner.has_ip = inner.kind == "ovs-interface"
            if not inner.has_ip and (inner.v4.enabled or inner.v6.enabled):
                raise ImageError(
                    f"{inner.path} has addresses, yet is a port of {controller.name}; give them to an ovs-interface"
                )
            inner.controller = one.key
            inner.section("connection").update({"master": port.name, "slave-type": "ovs-port"})
    return warnings


def check_ovs(one: Interface) -> None:
    """What is of Open vSwitch alone."""
    inside = (one.controller or "").startswith("ovs-port:")
    if one.kind == "ovs-interface" and not inside:
        raise ImageError(f"{one.path}: no ovs-bridge of this document has {one.name} among its ports")
    if one.ovs_data and not inside and one.kind != "ovs-bridge":
        raise ImageError(f"{one.path}.ovs-db has a meaning only for an ovs-bridge and its ports")
    one.settings.update(one.ovs_data)
