# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The networks of a new server: private ones, primary IPs, and whether SSH gets from here to an address in them."""

from __future__ import annotations

import ipaddress
import re
import shlex
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._common.ssh_access import direct_address
from .._common.text import listed, moment
from .api_failures import FleetError
from .api_types import Attachment, Choice, Machine, Resolved, Server
from .catalog import Catalog, Unfit, check_location, pick
from .ssh import run_limited

#: Keys of an entry of ``networks`` that is a dictionary.
KEYS = ("name", "ip", "alias_ips", "subnet")
#: What the API calls a primary IP of each option.
PRIMARY = {"primary_ipv4": "ipv4", "primary_ipv6": "ipv6"}
#: What the API calls a primary IP that it makes with a server, and seconds between the times that it gives for the two.
_COMES_ALONG, _MADE_TOGETHER = re.compile(r"primary_ip-[0-9]+\Z"), 60
#: Where all public IPv6 addresses are.
_GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")
_IPV4_ROUTES, _IPV6_ROUTES = "/proc/net/route", "/proc/net/ipv6_route"


def resolve_attachments(machine: Machine, catalog: Catalog) -> list[Attachment]:
    """The places in private networks that a machine names; raises Unfit for what cannot be."""
    found: list[Attachment] = []
    for entry in machine.get("networks") or []:
        wanted = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        strange = sorted(str(key) for key in wanted if key not in KEYS)
        if strange or not wanted.get("name"):
            raise Unfit(f"networks: {entry!r} is no network; give its name, or a dictionary of {', '.join(KEYS)}")
        network = pick("networks", str(wanted["name"]), catalog.listed("networks"))
        place = _attachment(network, wanted)
        if any(one["network"] == place["network"] for one in found):
            raise Unfit(f"networks: '{network['name']}' is named twice; a server is in a network once")
        found.append(place)
    return found


def _attachment(network: Mapping[str, Any], wanted: Mapping[str, Any]) -> Attachment:
    name = network["name"]
    try:
        block = ipaddress.ip_network(network["ip_range"])
        subnets = [ipaddress.ip_network(one["ip_range"]) for one in network.get("subnets") or [] if one.get("ip_range")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"networks: the API gives no address range of '{name}' that can be read; look at it in the Console"
        raise Unfit(text) from error
    asked = wanted.get("subnet")
    if asked is not None and str(asked) not in [str(one) for one in subnets]:
        there = ", ".join(str(one) for one in subnets) or "none"
        raise Unfit(f"networks: '{name}' has no subnet '{asked}'; there are: {there}")
    where = [ipaddress.ip_network(str(asked))] if asked is not None else subnets or [block]
    aliases = wanted.get("alias_ips") or []
    if not isinstance(aliases, list):
        raise Unfit(f"networks: alias_ips of '{name}' is {aliases!r}; give a list of addresses")
    own = [wanted["ip"]] if wanted.get("ip") is not None else []
    for text in [*own, *aliases]:
        _check_address(name, str(text), block, where)
    if len({str(text) for text in [*own, *aliases]}) < len(own) + len(aliases):
        raise Unfit(f"networks: '{name}': an address is named twice")
    return {
        "network": network["id"],
        "ip": str(own[0]) if own else None,
        "alias_ips": [str(text) for text in aliases],
        "ip_range": str(asked) if asked is not None else None,
    }


def _check_address(name: str, text: str, block: Any, where: Sequence[Any]) -> None:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError as error:
        raise Unfit(f"networks: '{text}' is no IPv4 address, and '{name}' has no others") from error
    inside = [one for one in where if address in one]
    if not inside:
        there = ", ".join(str(one) for one in where)
        raise Unfit(f"networks: '{text}' is in none of the subnets of '{name}'; choose one of {there}")
    # The API keeps them: the first one of the network is its gateway.
    if address in (inside[0].network_address, inside[0].broadcast_address, block.network_address + 1):
        raise Unfit(f"networks: '{text}' is kept by the API for '{name}' (network, broadcast or gateway); take another")


def needs_action(place: Attachment) -> bool:
    """Whether the request that creates a server cannot ask for this place."""
    return bool(place["ip"] or place["alias_ips"] or place["ip_range"])


def taken(places: Mapping[str, Sequence[Attachment]], servers: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each private address that is asked for twice, or that another server has.

    ``places``: of each machine, by its name, which is its server's, too.
    """
    owners: dict[tuple[int, str], str] = {}
    for server in servers:
        for net in server.get("private_net") or []:
            for ip in [net.get("ip"), *(net.get("alias_ips") or [])]:
                owners[net.get("network"), str(ip)] = str(server.get("name"))
    found = []
    for machine, mine in places.items():
        for place in mine:
            for ip in [*([place["ip"]] if place["ip"] else []), *place["alias_ips"]]:
                owner = owners.setdefault((place["network"], ip), machine)
                if owner != machine:
                    found.append(f"machine '{machine}': networks: '{ip}' is taken by '{owner}'; take another address")
    return found


def named_twice(resolved: Mapping[str, Resolved]) -> list[str]:
    """A sentence for each primary IP that two machines name."""
    owners: dict[int, str] = {}
    found = []
    for machine, one in resolved.items():
        for kind, number in one["primary_ips"].items():
            owner = owners.setdefault(number, machine)
            if owner != machine:
                found.append(f"machine '{machine}': primary_{kind}: machine '{owner}' has it, too; give each its own")
    return found


def missing(places: Sequence[Attachment], server: Server) -> list[Attachment]:
    """The places that a server does not have."""
    there = {net.get("network") for net in server.get("private_net") or []}
    return [place for place in places if place["network"] not in there]


def primary_ips(machine: Machine, catalog: Catalog) -> dict[str, dict[str, Any]]:
    """The primary IPs that a machine names, by kind (``ipv4``, ``ipv6``)."""
    given: Mapping[str, Any] = machine
    found = {}
    for option, kind in PRIMARY.items():
        wanted = given.get(option)
        if not wanted:
            continue
        if not given.get(f"enable_{kind}", True):
            raise Unfit(f"{option}: '{wanted}' is named, but enable_{kind} is false; leave one of the two out")
        item = pick(option, str(wanted), [one for one in catalog.listed("primary_ips") if one.get("type") == kind])
        found[kind] = item
    return found


def kept_by_people(machine: Machine, server: Server, items: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The primary IPs that go with a server, since their auto_delete is on, and that did not come with it (pure).

    ``items``: those of the project. The API calls those that come with a server ``primary_ip-`` and a number, and makes
    them together with it. One that the machine names is meant to stay in any case.
    """
    given: Mapping[str, Any] = machine
    named = [str(given[option]) for option in PRIMARY if given.get(option)]
    made = moment(server.get("created"))
    found = []
    for item in items:
        if item.get("assignee_id") != server["id"] or item.get("auto_delete") is not True:
            continue
        born = moment(item.get("created"))
        before = made is not None and born is not None and born < made - _MADE_TOGETHER
        came_along = _COMES_ALONG.match(str(item.get("name"))) and not before
        if not came_along or str(item.get("name")) in named or str(item.get("id")) in named:
            found.append(item)
    return found


def keep_them(server: Server, items: Iterable[Mapping[str, Any]]) -> str:
    """Why a server with such primary IPs is not deleted."""
    items = list(items)
    which = listed([f"'{item.get('name')}' ({item.get('ip')})" for item in items])
    ways = " and ".join(f"hcloud primary-ip update {item.get('id')} --auto-delete=false" for item in items)
    nouns, was, stays = ("primary IPs", "were", "They stay and cost") if len(items) > 1 else ("primary IP", "was", "")
    return (
        f"server '{server['name']}' (id {server['id']}) would take {nouns} {which} with it, since auto_delete is on, "
        f"and that {was} not made for this server alone. Switch it off ({ways}), then run again. "
        f"{stays or 'It stays and costs'} until you delete {'them' if stays else 'it'}"
    )


def check_free(kind: str, item: Mapping[str, Any]) -> None:
    """Refuse a primary IP that a server has."""
    owner = item.get("assignee_id")
    if owner is not None:
        raise Unfit(f"primary_{kind}: '{item['name']}' belongs to server {owner}; unassign it there, or take another")


def where_it_can_be(
    choices: Sequence[Choice],
    catalog: Catalog,
    places: Sequence[Attachment],
    primary: Mapping[str, Mapping[str, Any]],
) -> list[Choice]:
    """Only those choices whose location has the primary IPs, and lies in the zone of the private networks."""
    left = list(choices)
    for kind, item in primary.items():
        home = item["location"]["name"]
        left = [_at(choice, home, catalog) for choice in left if choice.location in (None, home)]
        if not left:
            raise Unfit(
                f"primary_{kind}: '{item['name']}' is in {home}; name that location, and a type that is offered there"
            )
    if places and any(choice.location for choice in left):
        zones = _zones(places, catalog)
        home_of = {one["name"]: one.get("network_zone") for one in catalog.listed("locations")}
        fitting = [one for one in left if not zones or one.location is None or home_of.get(one.location) in zones]
        if not fitting:
            named = ", ".join(dict.fromkeys(str(one.location) for one in left))
            raise Unfit(
                f"networks: the subnets are in {' and '.join(sorted(zones))}, but location {named} is not; choose a "
                "location of that zone"
            )
        left = fitting
    return left


def _at(choice: Choice, home: str, catalog: Catalog) -> Choice:
    types = catalog.listed("server_types")
    return choice._replace(location=check_location(home, choice.server_type, types, exists=choice.location is not None))


def _zones(places: Sequence[Attachment], catalog: Catalog) -> set[str]:
    """The zones in which all these networks have subnets; empty when they do not say."""
    by_id = {network["id"]: network for network in catalog.listed("networks")}
    each = [
        {subnet.get("network_zone") for subnet in by_id[place["network"]].get("subnets") or []} - {None}
        for place in places
    ]
    known = [zones for zones in each if zones]
    return set.intersection(*known) if known else set()


def reach_finding(
    machine: Machine, places: Sequence[Attachment], catalog: Catalog, routes: Callable[[int], list[Any] | None]
) -> str:
    """Why SSH cannot get from this controller to a new server, by ``routes(4 or 6)``; empty when it can, or may."""
    public = machine.get("enable_ipv4", True) or machine.get("enable_ipv6", True)
    if not public and not places:
        return "enable_ipv4 and enable_ipv6 are false, and networks is empty: a server needs a network"
    arguments = machine.get("ssh_args")
    if machine.get("enable_ipv4", True) or arguments is None:
        return ""
    if public:
        known = routes(6)
        if (
            known is None
            or any(route.overlaps(_GLOBAL_IPV6) for route in known)
            or _by_another_host("2001:db8::1", arguments)
        ):
            return ""
        return (
            "enable_ipv4 is false, and this controller has no route to IPv6 addresses, so that SSH cannot get there; "
            "name a jump host (ProxyJump in ansible_ssh_common_args), give this controller IPv6, or leave IPv4 enabled"
        )
    blocks = [
        ipaddress.ip_network(network["ip_range"])
        for network in catalog.listed("networks")
        if network["id"] in [place["network"] for place in places]
    ]
    known = routes(4)
    if known is None or any(route.prefixlen and route.overlaps(block) for route in known for block in blocks):
        return ""
    if any(_by_another_host(str(place["ip"] or block[2]), arguments) for place, block in zip(places, blocks)):
        return ""
    return (
        f"enable_ipv4 and enable_ipv6 are false, and this controller has no route of its own to "
        f"{', '.join(str(block) for block in blocks)}, so that SSH cannot get there; name a jump host (ProxyJump in "
        "ansible_ssh_common_args), or give the server a public address"
    )


def _by_another_host(address: str, arguments: str) -> bool:
    """Whether ssh, started with these arguments, reaches an address through another host."""
    try:
        code, settings, _errors = run_limited(["ssh", "-G", *shlex.split(arguments), "--", address], 10)
    except (FleetError, ValueError):
        return False
    return code == 0 and direct_address(settings) is None


def routes_of_this_host(version: int) -> list[Any] | None:
    """Networks to which this host has a route, its own addresses left out; None where it does not tell."""
    try:
        with open(_IPV4_ROUTES if version == 4 else _IPV6_ROUTES, encoding="ascii") as file:
            lines = [line.split() for line in file]
    except FileNotFoundError:
        # Without IPv6 the kernel of Linux has no such file; other systems have neither.
        return [] if version == 6 and routes_of_this_host(4) is not None else None
    except OSError:
        return None
    return _ipv4_routes(lines[1:]) if version == 4 else _ipv6_routes(lines)


def _ipv4_routes(lines: Iterable[list[str]]) -> list[Any]:
    found = []
    for name, target, _gateway, flags, _refs, _use, _metric, mask, *_rest in lines:
        # up, and not refused
        if name != "lo" and int(flags, 16) & 0x1 and not int(flags, 16) & 0x200:
            address, bits = (socket.inet_ntoa(struct.pack("=L", int(one, 16))) for one in (target, mask))
            found.append(ipaddress.ip_network(f"{address}/{bits}", strict=False))
    return found


def _ipv6_routes(lines: Iterable[list[str]]) -> list[Any]:
    found = []
    for line in lines:
        target, length, flags, name = line[0], int(line[1], 16), int(line[8], 16), line[9]
        # up, not refused, not local
        if name != "lo" and flags & 0x1 and not flags & (0x200 | 0x80000000):
            network = ipaddress.ip_network((int(target, 16), length), strict=False)
            if not (network.is_link_local or network.is_multicast):
                found.append(network)
    return found
