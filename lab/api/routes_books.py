# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of placement groups, networks, firewalls, volumes and primary IPs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from lab.api import schemas, views
from lab.api.books import Books
from lab.api.cloud import found
from lab.api.errors import not_unique, unsupported
from lab.api.http import BY_NAME_AND_AGE, answer, body, cloud, identifier, listing, select
from lab.api.model import Thin

_KINDS = ("placement_group", "network", "firewall", "volume")


def thin_routes(books: Books) -> web.RouteTableDef:
    """The routes, on top of the books."""
    routes = web.RouteTableDef()
    for kind in _KINDS:
        _add_reads(routes, books, kind)
    _add_create(routes, books, "placement_group", schemas.PlacementGroupCreate, books.create_placement_group)
    _add_create(routes, books, "network", schemas.NetworkCreate, books.create_network)
    _add_create(routes, books, "firewall", schemas.FirewallCreate, books.create_firewall)

    @routes.post("/volumes")
    @routes.post("/primary_ips")
    async def refuse(request: web.Request) -> web.Response:
        """Volumes and loose addresses would need machines that can have them."""
        raise unsupported(f"the lab cannot create {request.path.rpartition('/')[2].replace('_', ' ')}")

    @routes.get("/primary_ips")
    async def list_primary_ips(request: web.Request) -> web.Response:
        """The addresses of all servers."""
        items = select(request, cloud(request).primary_ips.values())
        if "ip" in request.query:
            items = [item for item in items if item.ip == request.query["ip"]]
        return listing(request, "primary_ips", items, views.primary_ip, BY_NAME_AND_AGE)

    @routes.get(r"/primary_ips/{id:[0-9]+}")
    async def get_primary_ip(request: web.Request) -> web.Response:
        """One address."""
        item = found("primary IP", cloud(request).primary_ips, identifier(request))
        return answer({"primary_ip": views.primary_ip(item)})

    return routes


def _add_reads(routes: web.RouteTableDef, books: Books, kind: str) -> None:
    def view(item: Thin) -> dict[str, Any]:
        return views.thin(item) | books.members(item, kind)

    def one(request: web.Request) -> Thin:
        return found(kind.replace("_", " "), cloud(request).thin[kind], identifier(request))

    @routes.get(f"/{kind}s")
    async def list_all(request: web.Request) -> web.Response:
        return listing(request, f"{kind}s", select(request, cloud(request).thin[kind].values()), view, BY_NAME_AND_AGE)

    @routes.get(f"/{kind}s/{{id:[0-9]+}}")
    async def get_one(request: web.Request) -> web.Response:
        return answer({kind: view(one(request))})

    @routes.put(f"/{kind}s/{{id:[0-9]+}}")
    async def update(request: web.Request) -> web.Response:
        item = one(request)
        wanted = await body(request, schemas.NamedUpdate)
        if wanted.name is not None:
            others = (other for other in cloud(request).thin[kind].values() if other is not item)
            if any(other.name == wanted.name for other in others):
                raise not_unique("name", f"{kind.replace('_', ' ')} name is already used")
            item.name = wanted.name
        if wanted.labels is not None:
            item.labels = dict(wanted.labels)
        return answer({kind: view(item)})

    @routes.delete(f"/{kind}s/{{id:[0-9]+}}")
    async def delete(request: web.Request) -> web.Response:
        books.delete(kind, one(request))
        return web.Response(status=204)


def _add_create(
    routes: web.RouteTableDef, books: Books, kind: str, model: type[schemas.Body], create: Callable[[Any], Thin]
) -> None:
    @routes.post(f"/{kind}s")
    async def handler(request: web.Request) -> web.Response:
        item = create(await body(request, model))
        data: dict[str, Any] = {kind: views.thin(item) | books.members(item, kind)}
        if kind == "placement_group":
            data["action"] = None
        if kind == "firewall":
            data["actions"] = []
        return answer(data, status=201)
