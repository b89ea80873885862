# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The network of the new system, as the rescue has it, where installimage's own configuration of it is read by nothing.

installimage writes one configuration for each distribution: for Debian /etc/network/interfaces alone, whether ifupdown
is there or not. An image with another program would ask by DHCP, and take its neighbours for machines of its own
network: between dedicated servers only the way through the gateway is open.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..._common.text import json_objects

#: Where a rescue asks for names; the second one when the first names a resolver of its own.
RESOLVERS = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
#: A machine with such an address is behind a router, and installimage leaves it to DHCP.
_PRIVATE = tuple(
    ipaddress.ip_network(net) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
_MOST_SERVERS = 3


class Network(NamedTuple):
    """What a rescue's interface has: ``addresses`` and ``gateways`` by version (4, 6); those of DNS ``servers``."""

    mac: str
    addresses: dict[int, str]
    gateways: dict[int, str]
    servers: list[str]


def read(
    run: Callable[[list[str]], tuple[int, str, str]], ipv4_only: bool = False, resolvers: Iterable[str] = RESOLVERS
) -> Network | None:
    """The network of this rescue; None when it has none that a system could be given.

    ``run(argv)`` returns exit code, stdout and stderr.
    """
    links = _printed(run(["ip", "-json", "address", "show"]))
    routes = {
        version: _printed(run(["ip", "-json", f"-{version}", "route", "show", "default"]))
        for version in ((4,) if ipv4_only else (4, 6))
    }
    device = next((route.get("dev") for found in routes.values() for route in found), None)
    link = next((link for link in links if link.get("ifname") == device), None)
    if link is None or not _MAC.match(str(link.get("address")).lower()):
        return None
    addresses: dict[int, str] = {}
    gateways: dict[int, str] = {}
    for version, found in routes.items():
        gateway = next((_ip(route.get("gateway")) for route in found if route.get("dev") == device), None)
        address = next(iter(_addresses(link, version)), None)
        if gateway is not None and gateway.version == version and address is not None:
            addresses[version], gateways[version] = str(address), str(gateway)
    if not addresses or any(ipaddress.ip_interface(one).ip in net for one in addresses.values() for net in _PRIVATE):
        return None
    return Network(link["address"].lower(), addresses, gateways, _servers(resolvers, addresses))


def networkd(network: Network) -> str:
    """The file for systemd-networkd: the address alone, everything else through the gateway."""
    # Bridges and VLANs have the address of the card below them.
    lines = ["# written by kubenode.provision: the network that the rescue had", "[Match]"]
    lines += ["MACAddress=" + network.mac, "Type=ether", "Kind=!vlan !bridge !bond !team !macvlan !macvtap !ipvlan"]
    lines += ["", "[Network]", *("DNS=" + server for server in network.servers)]
    lines += ["Address=" + _alone(version, address) for version, address in sorted(network.addresses.items())]
    for version, gateway in sorted(network.gateways.items()):
        lines += ["", "[Route]", "Gateway=" + gateway]
        lines += ["GatewayOnLink=yes"] if version == 4 or not ipaddress.ip_address(gateway).is_link_local else []
    return "\n".join(lines) + "\n"


def keyfile(network: Network) -> str:
    """The same for NetworkManager, which adds the way to a gateway outside of the network by itself."""
    lines = ["# written by kubenode.provision: the network that the rescue had", "[connection]"]
    lines += [
        "id=kubenode",
        "type=ethernet",
        "autoconnect-priority=100",
        "",
        "[ethernet]",
        "mac-address=" + network.mac,
    ]
    for version in (4, 6):
        lines += ["", f"[ipv{version}]"]
        if version not in network.addresses:
            lines.append("method=auto" if version == 6 else "method=disabled")
            continue
        lines += ["method=manual", "address1=" + _alone(version, network.addresses[version])]
        lines.append("gateway=" + network.gateways[version])
        servers = [server for server in network.servers if ipaddress.ip_address(server).version == version]
        if servers:
            lines.append(f"dns={';'.join(servers)};")
    return "\n".join(lines) + "\n"


def _alone(version: int, address: str) -> str:
    return address.partition("/")[0] + "/32" if version == 4 else address


def _addresses(link: dict[str, Any], version: int) -> Iterator[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
    for one in link.get("addr_info") or []:
        if one.get("scope") == "global" and one.get("family") == ("inet" if version == 4 else "inet6"):
            try:
                yield ipaddress.ip_interface(f"{one.get('local')}/{one.get('prefixlen')}")
            except ValueError:
                continue


def _servers(resolvers: Iterable[str], addresses: dict[int, str]) -> list[str]:
    found: list[str] = []
    for path in resolvers:
        try:
            with open(path, encoding="utf-8", errors="replace") as lines:
                words = [line.split() for line in lines]
        except OSError:
            continue
        asked = [_ip(line[1]) for line in words if len(line) > 1 and line[0] == "nameserver"]
        found += [str(one) for one in asked if one is not None and one.version in addresses and _is_far(one)]
        if found:
            break
    return list(dict.fromkeys(found))[:_MOST_SERVERS]


def _is_far(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Not a resolver of the rescue's own, nor one behind an interface that may be called differently."""
    return not (address.is_loopback or address.is_link_local)


def _ip(text: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(str(text))
    except ValueError:
        return None


def _printed(answer: tuple[int, str, str]) -> list[dict[str, Any]]:
    """A list of objects that a program printed; empty when it did not."""
    code, out, dummy = answer
    return json_objects(out) if code == 0 else []
