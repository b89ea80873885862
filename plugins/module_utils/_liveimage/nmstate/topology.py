# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""How interfaces hang together: ports and their controllers, bases, peers; conflicts are refused."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ImageError
from . import ovs
from .ip import stack
from .profile import (
    ABSENT,
    IGNORE,
    MOST_INTERFACES,
    NAMES,
    UP,
    Below,
    Interface,
    OvsPort,
    Port,
    interface_name,
    true_false,
)

_CONTROLLERS = ("bond", "linux-bridge", "vrf")
_SINCE = {"hsr": "1.46", "ipvlan": "1.52"}  # NetworkManager


def connect(found: dict[str, Interface], others: Mapping[str, str]) -> list[str]:
    """Give every interface its controller, base and peer. What the user should know.

    ``others``: the state of those that are described and get no profile. What the document does not describe gets
    none, too: the live system's other configuration decides about it. But a controller's port that is only listed is
    taken for an ethernet interface, as nmstatectl does; without a profile it would not join its controller.
    """
    gone = {name for name, state in others.items() if state == ABSENT}
    for one in list(found.values()):
        if one.peer is not None:
            _pair(found, gone, one)
    warnings = _assume_ports(found, others)
    unlisted = {one.key for one in found.values() if one.kind in (*_CONTROLLERS, "ovs-bridge") and one.ports is None}
    for one in found.values():
        _join(found, unlisted, one)
        if one.kind in _SINCE:
            warnings.append(
                f"{one.path}: {one.kind} needs NetworkManager {_SINCE[one.kind]} or newer in the live system"
            )
    for one in list(found.values()):
        if one.kind == "ovs-bridge":
            warnings += ovs.attach(found, one)
        for port in one.ports or [] if one.kind != "ovs-bridge" else []:
            if port.name in found or port.name in gone:
                _attach(found, gone, one, port)
        for base in one.below:
            _put_on(found, gone, one, base)
        if one.primary is not None:
            _check_primary(found, one)
        if one.copy_mac is not None:
            _copy_mac(found, one)
    for one in found.values():
        ovs.check(one)
    _check_addresses(found)
    _check_identities(found)
    return warnings


def _assume_ports(found: dict[str, Interface], others: Mapping[str, str]) -> list[str]:
    """Describe ports that are only listed; what the user should know of those, and of ports that stay alone."""
    warnings = []
    for one in list(found.values()):
        members = [member for port in one.ovs_ports for member in port.members]
        for port in members if one.kind == "ovs-bridge" else one.ports or []:
            if others.get(port.name) == IGNORE:
                warnings.append(
                    f"{port.path}: {port.name} is ignored elsewhere, so it gets no profile and does not become a port "
                    f"of {one.name}"
                )
            if port.name in found or port.name in others:
                continue
            if len(found) >= MOST_INTERFACES:
                raise ImageError(
                    f"the document has more than {MOST_INTERFACES} interfaces with the ports that it lists"
                )
            warnings.append(f"{port.path}: {port.name} is not described, so it is taken for an ethernet interface")
            found[port.name] = Interface(
                port.name, "ethernet", port.path, port.name, UP, v4=stack(None, 4), v6=stack(None, 6)
            )
    return warnings


def ordered(found: dict[str, Interface]) -> list[Interface]:
    """Controllers before ports, bases before the interfaces on them; else in the order of the document."""
    done: dict[str, Interface] = {}

    def add(one: Interface) -> None:
        if one.key not in done:
            for name in [*filter(None, (one.controller,)), *(base.name for base in one.below)]:
                if name in found:
                    add(found[name])
            done[one.key] = one

    _check_circles(found)
    for one in found.values():
        add(one)
    return list(done.values())


def _check_circles(found: dict[str, Interface]) -> None:
    """A controller needs its ports, a VLAN needs its base; no interface may need itself."""
    settled: set[str] = set()
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in settled or name not in found:
            return
        if name in under_way:
            circle = " → ".join([*under_way[under_way.index(name) :], name])
            raise ImageError(f"{found[name].path} stands on itself: {circle}")
        under_way.append(name)
        one = found[name]
        for below in [*(port.name for port in one.ports or []), *(base.name for base in one.below)]:
            visit(below)
        settled.add(under_way.pop())

    for name in found:
        visit(name)


def _join(found: dict[str, Interface], unlisted: set[str], one: Interface) -> None:
    """A port that names its controller itself; ``unlisted``: controllers that do not name their ports."""
    name, one.controller = one.controller, None
    if not name:
        return
    path = one.path + ".controller"
    controller = found.get(interface_name(name, path))
    if controller is None or controller.kind not in _CONTROLLERS:
        controller = found.get("ovs-bridge:" + name)
    if controller is None:
        raise ImageError(f"{path}: {name} is no bond, bridge or VRF of this document")
    members = [member for port in controller.ovs_ports for member in port.members]
    if controller.key in unlisted:
        controller.ports = [*(controller.ports or []), Port(one.name, path)]
        controller.ovs_ports.append(OvsPort(one.name, path, [Port(one.name, path)]))
    elif all(port.name != one.name for port in members or controller.ports or []):
        raise ImageError(f"{path}: {name} does not list {one.name} among its ports")


def _attach(found: dict[str, Interface], gone: set[str], controller: Interface, port: Port) -> None:
    if port.name in gone:
        raise ImageError(f"{port.path}: {port.name} is a port here and absent elsewhere")
    one = found[port.name]
    routed = controller.kind == "vrf"
    if one is controller or one.kind == "vrf" or (not routed and one.kind == "linux-bridge") or (
        one.kind == "bond" and controller.kind == "bond"
    ):  # fmt: skip
        raise ImageError(f"{port.path}: {one.name} ({one.kind}) cannot be a port of a {controller.kind}")
    if one.controller is not None:
        raise ImageError(f"{port.path}: {one.name} is already a port of {one.controller}")
    for version in (4, 6):
        if one.stack(version).enabled and not routed:
            raise ImageError(
                f"{one.path}.ipv{version} is enabled, yet {one.name} is a port of {controller.name}; give the "
                f"addresses to {controller.name}"
            )
    one.controller = controller.name
    one.has_ip = routed
    connection = one.section("connection")
    connection["master"] = controller.name
    connection["slave-type"] = NAMES[controller.kind]
    if controller.kind == "linux-bridge":
        one.section("bridge-port").update(port.settings)
    elif port.settings:
        one.section("bond-port").update(port.settings)


def _put_on(found: dict[str, Interface], gone: set[str], one: Interface, below: Below) -> None:
    name, path = below.name, below.path
    if name in gone:
        raise ImageError(f"{path}: {name} is absent")
    base = found.get(name)
    for other in found.values():
        if other is not one and one.same and other.same == one.same:
            raise ImageError(f"{one.path}: {one.same[0]} is {other.name} already")
    if base is not None and one.mtu is not None and base.mtu is not None and one.mtu > base.mtu:
        raise ImageError(f"{one.path}.mtu: {one.mtu} is more than the {base.mtu} of {name}")
    if base is not None and base.nameless and below.key != "parent":
        raise ImageError(f"{path}: {name} goes by its MAC or PCI address, its name is not known to the kernel")
    one.section(below.section)[below.key] = base.uuid if base is not None and base.nameless else name


def _pair(found: dict[str, Interface], gone: set[str], one: Interface) -> None:
    name = one.peer or ""
    if name in gone:
        raise ImageError(f"{one.path}.veth.peer: {name} is absent")
    other = found.get(name)
    if other is None:  # the one profile that is made for what is not described: without it there would be no pair
        other = Interface(name, "veth", one.path + ".veth.peer", name, UP, v4=stack(None, 4), v6=stack(None, 6))
        other.peer = one.name
        other.settings["veth"] = {"peer": one.name}
        found[name] = other
    if other.kind != "veth" or other.peer != one.name:
        raise ImageError(f"{one.path}.veth.peer: {name} is not the other end")


def _check_primary(found: dict[str, Interface], one: Interface) -> None:
    path = one.path + ".link-aggregation.options.primary"
    port = found.get(one.primary or "")
    if all(other.name != one.primary for other in one.ports or []):
        raise ImageError(f"{path}: {one.primary} is no port of this bond")
    if port is not None and port.nameless:
        raise ImageError(f"{path}: {one.primary} goes by its MAC or PCI address, its name is not known to the kernel")


def _copy_mac(found: dict[str, Interface], one: Interface) -> None:
    source = found.get(one.copy_mac or "")
    if source is None or source.mac is None:
        raise ImageError(
            f"{one.path}.copy-mac-from: the MAC address of {one.copy_mac} is not known before the host boots; "
            "give mac-address there"
        )
    one.section("ethernet")["cloned-mac-address"] = source.mac


def _check_addresses(found: dict[str, Interface]) -> None:
    seen: dict[object, Interface] = {}
    for one in found.values():
        for version in (4, 6):
            for address, dummy in one.stack(version).addresses:
                router = one.controller if found.get(one.controller or "", one).kind == "vrf" else None
                other = seen.setdefault((router, address), one)
                if other is not one:
                    raise ImageError(f"{one.path}.ipv{version}: {address} is also given to {other.name}")


def _check_identities(found: dict[str, Interface]) -> None:
    seen: dict[str, Interface] = {}
    for one in found.values():
        if one.identity is not None:
            key, value = one.identity
            if value in seen:
                raise ImageError(f"{one.path}.{key}: {value} identifies {seen[value].name} already")
            seen[value] = one


def connection(one: Interface) -> dict[str, str]:
    """The section every profile begins with."""
    found = {
        "id": one.profile,
        "uuid": one.uuid,
        "type": NAMES[one.kind],
        "autoconnect": true_false(one.state == UP),
        "autoconnect-slaves": "1" if one.kind in (*_CONTROLLERS, "ovs-bridge") else "-1",
    }
    if not one.nameless:
        found["interface-name"] = one.name
    return found
