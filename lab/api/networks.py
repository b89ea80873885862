# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses: places of servers and load balancers in private networks; primary IPs, which stay when a server goes."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable
from typing import Any, cast

from aiohttp import web

from . import schemas, views
from .actions import Job
from .cloud_project import Cloud, check_name, check_unlocked, refuse_if, update_named
from .http import add_resource, answer, body
from .resources import Action, LoadBalancer, Location, MetadataOnly, PrimaryIp, PrivateNet, Server, now
from .schemas import ApiError, invalid_input, not_unique, unsupported

#: As the platform: so many at most for a server in one network.
ALIASES = 5


def content_of(body: schemas.NetworkCreate) -> dict[str, object]:
    """What a new network consists of; subnets get their gateway, the first address of the network."""
    try:
        block = ipaddress.IPv4Network(body.ip_range)
    except ValueError as error:
        raise invalid_input({"ip_range": [f"'{body.ip_range}' is not an IPv4 network: {error}"]}) from error
    refuse_if(not block.is_private, invalid_input({"ip_range": [f"'{block}' is not private (RFC 1918)"]}))
    subnets = []
    for subnet in body.subnets or ():
        try:
            part = ipaddress.IPv4Network(
                subnet.ip_range or str(next(block.subnets(new_prefix=max(24, block.prefixlen))))
            )
        except ValueError as error:
            raise invalid_input({"subnets": [f"'{subnet.ip_range}' is not an IPv4 network: {error}"]}) from error
        refuse_if(not part.subnet_of(block), invalid_input({"subnets": [f"'{part}' is not in {block}"]}))
        subnets.append(
            {
                "type": subnet.type,
                "ip_range": str(part),
                "network_zone": subnet.network_zone,
                "gateway": gateway_of(block),
                "vswitch_id": subnet.vswitch_id,
            }
        )
    return {
        "ip_range": str(block),
        "subnets": subnets,
        "routes": body.routes or [],
        "expose_routes_to_vswitch": bool(body.expose_routes_to_vswitch),
        "protection": {"delete": False},
    }


def gateway_of(block: ipaddress.IPv4Network) -> str:
    """The address that the platform keeps for itself."""
    return str(block.network_address + 1)


def find_place(
    network: MetadataOnly, owners: Iterable[Server | LoadBalancer], ip: str | None, subnet: str | None = None
) -> str:
    """A free address of a network: the one that was asked for, or the next one; of a subnet, if it is named.

    A network without subnets counts as one subnet.
    """
    block = ipaddress.IPv4Network(str(network.content["ip_range"]))
    parts = [ipaddress.IPv4Network(one["ip_range"]) for one in _subnets(network)] or [block]
    if subnet is not None:
        parts = [part for part in parts if str(part) == subnet]
        refuse_if(not parts, invalid_input({"ip_range": [f"'{subnet}' is no subnet of the network"]}))
    mine = [net for owner in owners for net in owner.private_net if net.network == network.id]
    used = {address for net in mine for address in net.all}
    kept = {gateway_of(block), *(str(one) for part in parts for one in (part.network_address, part.broadcast_address))}
    free = (str(host) for part in parts for host in part.hosts() if str(host) not in used | kept)
    address = ip or next(free, None)
    if address is None:
        raise ApiError(422, "no_subnet_available", "no subnet has a free address")
    refuse_if(not _within(address, parts), invalid_input({"ip": [f"'{address}' is not in a subnet of {block}"]}))
    refuse_if(address in used | kept, ApiError(422, "ip_not_available", f"IP {address} is not available"))
    return address


def _subnets(network: MetadataOnly) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", network.content["subnets"])


def _within(address: str, blocks: Iterable[ipaddress.IPv4Network]) -> bool:
    try:
        return any(ipaddress.IPv4Address(address) in block for block in blocks)
    except ValueError:
        return False


class Networks:
    """What can be done with the places of servers."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def places(self, server: Server) -> list[tuple[int, str, str, str]]:
        """What the machine of a server needs to know of its places."""
        ranges = self.cloud.metadata_only["network"]
        return [
            (net.network, str(ranges[net.network].content["ip_range"]), net.mac, net.ip) for net in server.private_net
        ]

    def plan(self, server: Server, body: schemas.AttachToNetwork) -> PrivateNet:
        """The place that a server gets, or why it does not."""
        network = self.cloud.metadata_only_reference("network", body.network, "network")
        refuse_if(
            any(net.network == network.id for net in server.private_net),
            not_unique("network", "server is already attached to this network"),
        )
        zones = {subnet["network_zone"] for subnet in _subnets(network)}
        refuse_if(
            bool(zones) and server.location.network_zone not in zones,
            invalid_input({"network": [f"no subnet of '{network.name}' is in {server.location.network_zone}"]}),
        )
        mac = f"86:00:00:{server.index:02x}:{len(server.private_net):02x}:{network.id & 0xFF:02x}"
        place = PrivateNet(network.id, find_place(network, self.cloud.owners(), body.ip, body.ip_range), mac)
        return self._with_aliases(place, network, body.alias_ips or [], ())

    def attach(self, server: Server, body: schemas.AttachToNetwork) -> Action:
        check_unlocked(server)
        server.private_net.append(self.plan(server, body))
        return self.cloud.start(server, "attach_to_network", Job())

    def detach(self, server: Server, body: schemas.DetachFromNetwork) -> Action:
        self._place(server, body.network)

        def done() -> None:
            server.private_net = [net for net in server.private_net if net.network != body.network]

        return self.cloud.start(server, "detach_from_network", Job(done=done))

    def change_aliases(self, server: Server, body: schemas.ChangeAliasIps) -> Action:
        """Give a place other addresses beside its own."""
        place = self._place(server, body.network)
        network = self.cloud.metadata_only_reference("network", body.network, "network")
        changed = self._with_aliases(place, network, body.alias_ips, place.alias_ips)

        def done() -> None:
            server.private_net = [changed if net is place else net for net in server.private_net]

        return self.cloud.start(server, "change_alias_ips", Job(done=done))

    def _with_aliases(
        self, place: PrivateNet, network: MetadataOnly, aliases: list[str], own: tuple[str, ...]
    ) -> PrivateNet:
        refuse_if(
            len(aliases) > ALIASES,
            invalid_input({"alias_ips": [f"at most {ALIASES} alias IPs in a network are allowed"]}),
        )
        for address in aliases:
            if address not in own:
                find_place(network, self.cloud.owners(), address)
            refuse_if(address == place.ip, ApiError(422, "ip_not_available", f"IP {address} is not available"))
        return PrivateNet(place.network, place.ip, place.mac, tuple(aliases))

    @staticmethod
    def _place(server: Server, network: int) -> PrivateNet:
        for net in server.private_net:
            if net.network == network:
                return net
        raise invalid_input({"network": [f"server is not attached to network '{network}'"]})


_NAME_TAKEN = "primary IP name is already used"
#: Numbers of IPv6 networks that no machine number can be.
_FIRST_FREE_NETWORK = 0x1000


class PrimaryIps:
    """The addresses of one project."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._networks = itertools.count(_FIRST_FREE_NETWORK)

    def create(self, wanted: schemas.PrimaryIpCreate) -> PrimaryIp:
        """A new address that no server has."""
        check_name(self.cloud.primary_ips, wanted.name, _NAME_TAKEN)
        refuse_if(
            wanted.assignee_id is not None,
            unsupported("the lab assigns primary IPs when a server is created; leave assignee_id out"),
        )
        if wanted.location is None:
            raise invalid_input({"location": ["Missing data for required field."]})
        location, index = self.cloud.location(wanted.location), 0
        if wanted.type == "ipv4":
            index = self.cloud.free_index()
            ip = self.cloud.backend.address(index)
        else:
            ip = self.cloud.backend.ipv6_network(next(self._networks))
        item = PrimaryIp(
            id=self.cloud.new_id("primary_ip"), name=wanted.name, type=wanted.type, ip=ip, location=location,
            created=now(), assignee_id=None, auto_delete=wanted.auto_delete, labels=dict(wanted.labels or {}),
            index=index,
        )  # fmt: skip
        self.cloud.primary_ips[item.id] = item
        return item

    def delete(self, item: PrimaryIp) -> None:
        refuse_if(
            item.assignee_id is not None, ApiError(422, "primary_ip_assigned", f"primary IP '{item.name}' is assigned")
        )
        del self.cloud.primary_ips[item.id]

    def wanted(self, net: schemas.PublicNetCreate | None, location: Location) -> dict[str, PrimaryIp]:
        """The addresses that a new server names, by kind."""
        named = {"ipv4": net.ipv4 if net else None, "ipv6": net.ipv6 if net else None}
        return {kind: self._usable(kind, number, location) for kind, number in named.items() if number is not None}

    def _usable(self, kind: str, number: int, location: Location) -> PrimaryIp:
        item = self.cloud.primary_ips.get(number)
        if item is None:
            raise invalid_input({f"public_net.{kind}": [f"primary IP '{number}' not found"]})
        refuse_if(item.type != kind, ApiError(422, "primary_ip_version_mismatch", f"primary IP {number} is no {kind}"))
        refuse_if(
            item.assignee_id is not None,
            ApiError(422, "primary_ip_assigned", f"primary IP {number} is assigned already"),
        )
        refuse_if(
            item.location != location,
            ApiError(422, "primary_ip_datacenter_mismatch", f"primary IP {number} is in {item.location.name}"),
        )
        return item

    def give(self, server: Server, named: dict[str, PrimaryIp], net: schemas.PublicNetCreate | None) -> None:
        """The addresses of a new server: those that it names, else new ones that go with it."""
        if net is None or net.enable_ipv4:
            server.ipv4 = named.get("ipv4") or self._own(server, "ipv4", self.cloud.backend.address(server.index))
        if net is None or net.enable_ipv6:
            server.ipv6 = named.get("ipv6") or self._own(server, "ipv6", self.cloud.backend.ipv6_network(server.index))
        for item in named.values():
            item.assignee_id = server.id

    def _own(self, server: Server, kind: str, ip: str) -> PrimaryIp:
        number = self.cloud.new_id("primary_ip")
        item = PrimaryIp(number, f"primary_ip-{number}", kind, ip, server.location, now(), server.id)
        item.index = server.index if kind == "ipv4" else 0
        self.cloud.primary_ips[number] = item
        return item

    def release(self, server: Server) -> None:
        """What becomes of the addresses of a server that is gone."""
        for item in (server.ipv4, server.ipv6):
            if item is not None:
                item.assignee_id = None
                if item.auto_delete:
                    self.cloud.primary_ips.pop(item.id, None)


def primary_ip_routes(addresses: PrimaryIps) -> web.RouteTableDef:
    routes = web.RouteTableDef()

    def update(project: Cloud, item: PrimaryIp, wanted: schemas.PrimaryIpUpdate) -> None:
        """Rename, relabel, or let it go with its server."""
        update_named(project.primary_ips, item, wanted, _NAME_TAKEN)
        if wanted.auto_delete is not None:
            item.auto_delete = wanted.auto_delete

    add_resource(
        routes, "primary_ip", lambda project: project.primary_ips, lambda _project, item: views.primary_ip(item),
        label="primary IP", filters=["ip"], model=schemas.PrimaryIpUpdate, update=update,
        delete=lambda _project, item: addresses.delete(item),
    )  # fmt: skip

    @routes.post("/primary_ips")
    async def create(request: web.Request) -> web.Response:
        item = addresses.create(await body(request, schemas.PrimaryIpCreate))
        return answer({"primary_ip": views.primary_ip(item), "action": None}, status=201)

    return routes
