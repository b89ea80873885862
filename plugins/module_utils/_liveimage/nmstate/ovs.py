# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Open vSwitch: a bridge, a profile for each of its ports, and the interfaces in these.

A bridge is no interface of the kernel, so an interface may have its name. In the table of interfaces bridges and ports
have keys that no interface can have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import ImageError
from .controllers import port_list, vlan_range
from .document import Fields
from .profile import Interface, OvsPort, Port, interface_name, true_false

_NEEDS = "%s: Open vSwitch and NetworkManager's plugin for it have to be in the live system"
_MODES = {  # of a bond → what NetworkManager's port says
    "active-backup": {"lacp": "off", "bond-mode": "active-backup"},
    "balance-slb": {"lacp": "off", "bond-mode": "balance-slb"},
    "balance-tcp": {"lacp": "active", "bond-mode": "balance-tcp"},
    "lacp": {"lacp": "active"},
}
_KEY = re.compile(r"[A-Za-z0-9_./+-]{1,100}\Z")


def bridge(fields: Fields, found: Interface) -> None:
    """An ovs-bridge by its section ``bridge``."""
    settings = found.section("ovs-bridge")
    options = fields.mapping("options")
    if options is not None:
        stp = options.raw("stp")
        if isinstance(stp, Mapping):
            own = Fields(stp, options.at("stp"))
            given = own.flag("enabled")
            own.done()
        else:
            given = options.flag("stp")
        flags = {"stp-enable": given, "rstp-enable": options.flag("rstp"),
                 "mcast-snooping-enable": options.flag("mcast-snooping-enable")}  # fmt: skip
        settings.update({key: true_false(one) for key, one in flags.items() if one is not None})
        settings["fail-mode"] = options.choice("fail-mode", ("", "secure", "standalone")) or ""
        settings["datapath-type"] = options.choice("datapath", ("", "system", "netdev")) or ""
        options.done()
    fields.ignore("allow-extra-patch-ports")
    ports: list[OvsPort] = []

    def read(one: Fields) -> Port:
        ports.append(_port(one))
        return Port(ports[-1].name, one.path)

    found.ports = port_list(fields, read)
    fields.done()
    found.ovs_ports = ports


def _port(fields: Fields) -> OvsPort:
    name = interface_name(fields.needed("name"), fields.at("name"))
    found = OvsPort(name, fields.path, [Port(name, fields.path)])
    link = fields.mapping("link-aggregation")
    if link is not None:
        mode = link.choice("mode", tuple(_MODES))
        found.settings.update(_MODES[mode] if mode else {})
        for key in ("bond-updelay", "bond-downdelay"):
            number = link.number(key, 0, 2**32 - 1)
            if number is not None:
                found.settings[key] = str(number)
        found.members = port_list(link, _member) or []
        if len(found.members) < 2:
            raise ImageError(f"{link.path}: a bond of Open vSwitch has two ports or more")
        found.data = database(link)
        link.done()
    vlan = fields.mapping("vlan")
    if vlan is not None:
        tag = vlan.number("tag", 0, 4095)
        mode = vlan.choice("mode", ("access", "trunk", "native-tagged", "native-untagged"))
        trunks = sorted(vlan_range(one, 0, 4095) for one in vlan.mappings("trunk-tags"))
        vlan.done()
        found.settings.update({"tag": "" if tag is None else str(tag), "vlan-mode": mode or ""})
        found.settings["trunks"] = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in trunks)
    fields.done()
    return found


def _member(fields: Fields) -> Port:
    name = interface_name(fields.needed("name"), fields.at("name"))
    fields.done()
    return Port(name, fields.path)


def interface(fields: Fields, found: Interface) -> None:
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
        devices = dpdk.needed("devargs")
        keys = [key for key in ("rx-queue", "n_rxq") if dpdk.raw(key) is not None]
        if len(keys) == 2:
            raise ImageError(f"{dpdk.at(keys[0])} and {keys[1]} are the same; give one")
        numbers = {"n-rxq": dpdk.number(keys[0], 0, 2**32 - 1) if keys else None}
        numbers.update({key.replace("_", "-"): dpdk.number(key, 0, 2**32 - 1) for key in ("n_rxq_desc", "n_txq_desc")})
        dpdk.done()
        found.settings["ovs-dpdk"] = {"devargs": devices}
        found.settings["ovs-dpdk"].update({key: str(one) for key, one in numbers.items() if one is not None})
    found.settings["ovs-interface"] = {"type": kind}


def database(fields: Fields) -> dict[str, dict[str, str]]:
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
            if not _KEY.match(name):
                raise ImageError(f"{values.path}: {name[:60]!a} is no key that NetworkManager takes")
            value = values.raw(name)
            text = true_false(value) if isinstance(value, bool) else values.text(name)
            if text:
                texts["data." + name] = text
        if texts:
            found[section] = texts
    given.done()
    return found


def attach(found: dict[str, Interface], controller: Interface) -> list[str]:
    """Make a profile for each port of a bridge, and ports of their interfaces; what the user should know."""
    warnings = [_NEEDS % controller.path]
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


def check(one: Interface) -> None:
    """What is of Open vSwitch alone."""
    inside = (one.controller or "").startswith("ovs-port:")
    if one.kind == "ovs-interface" and not inside:
        raise ImageError(f"{one.path}: no ovs-bridge of this document has {one.name} among its ports")
    if one.ovs_data and not inside and one.kind != "ovs-bridge":
        raise ImageError(f"{one.path}.ovs-db has a meaning only for an ovs-bridge and its ports")
    one.settings.update(one.ovs_data)
