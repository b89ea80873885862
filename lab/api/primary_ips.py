# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Primary IPs: addresses with a name, which a new server takes and which stay when it goes."""

from __future__ import annotations

import itertools

from aiohttp import web

from . import schemas, views
from .api_errors import ApiError, invalid_input, unsupported
from .catalog import Location
from .cloud import Cloud, check_name, found, refuse_if, update_named
from .http import BY_NAME_AND_AGE, answer, body, identifier, listing, select
from .resources import PrimaryIp, Server, now

_NAME_TAKEN = "primary IP name is already used"
#: Numbers of IPv6 networks that no machine number can be.
_FIRST_FREE_NETWORK = 0x1000
_ONE = r"/primary_ips/{id:[0-9]+}"


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
        """Give it back."""
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
    """List, create, read, change, delete."""
    routes = web.RouteTableDef()

    def one(request: web.Request) -> PrimaryIp:
        return found("primary IP", addresses.cloud.primary_ips, identifier(request))

    @routes.get("/primary_ips")
    async def list_all(request: web.Request) -> web.Response:
        """All addresses; filters name, label_selector, ip."""
        items = select(request, addresses.cloud.primary_ips.values())
        if "ip" in request.query:
            items = [item for item in items if item.ip == request.query["ip"]]
        return listing(request, "primary_ips", items, views.primary_ip, BY_NAME_AND_AGE)

    @routes.post("/primary_ips")
    async def create(request: web.Request) -> web.Response:
        """Create one."""
        item = addresses.create(await body(request, schemas.PrimaryIpCreate))
        return answer({"primary_ip": views.primary_ip(item), "action": None}, status=201)

    @routes.get(_ONE)
    async def get(request: web.Request) -> web.Response:
        """One address."""
        return answer({"primary_ip": views.primary_ip(one(request))})

    @routes.put(_ONE)
    async def update(request: web.Request) -> web.Response:
        """Rename, relabel, or let it go with its server."""
        item, wanted = one(request), await body(request, schemas.PrimaryIpUpdate)
        update_named(addresses.cloud.primary_ips, item, wanted, _NAME_TAKEN)
        if wanted.auto_delete is not None:
            item.auto_delete = wanted.auto_delete
        return answer({"primary_ip": views.primary_ip(item)})

    @routes.delete(_ONE)
    async def delete(request: web.Request) -> web.Response:
        """Delete one that no server has."""
        addresses.delete(one(request))
        return web.Response(status=204)

    return routes
