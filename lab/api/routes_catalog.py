# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of what the provider offers: locations, server types, ISOs, pricing, data centers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from . import catalog, views
from .api_errors import ApiError, not_found
from .cloud import found
from .http import BY_ID, BY_NAME, answer, cloud, identifier, listing

_ANNOUNCEMENT = "https://docs.hetzner.cloud/changelog#2026-06-02-datacenters-deprecated"

routes = web.RouteTableDef()


def _named(request: web.Request, items: Mapping[int, Any]) -> list[Any]:
    wanted = request.query.get("name")
    return [item for item in items.values() if wanted in (None, item.name)]


@routes.get("/locations")
async def list_locations(request: web.Request) -> web.Response:
    """All locations."""
    return listing(request, "locations", _named(request, catalog.LOCATIONS), views.location, BY_NAME)


@routes.get(r"/locations/{id:[0-9]+}")
async def get_location(request: web.Request) -> web.Response:
    """One location."""
    return answer({"location": views.location(found("location", catalog.LOCATIONS, identifier(request)))})


@routes.get("/server_types")
async def list_server_types(request: web.Request) -> web.Response:
    """All server types."""
    return listing(request, "server_types", _named(request, catalog.SERVER_TYPES), views.server_type, BY_NAME)


@routes.get(r"/server_types/{id:[0-9]+}")
async def get_server_type(request: web.Request) -> web.Response:
    """One server type."""
    item = found("server type", catalog.SERVER_TYPES, identifier(request))
    return answer({"server_type": views.server_type(item)})


@routes.get("/load_balancer_types")
async def list_load_balancer_types(request: web.Request) -> web.Response:
    """All load balancer types."""
    items = _named(request, catalog.LOAD_BALANCER_TYPES)
    return listing(request, "load_balancer_types", items, views.load_balancer_type, BY_NAME)


@routes.get(r"/load_balancer_types/{id:[0-9]+}")
async def get_load_balancer_type(request: web.Request) -> web.Response:
    """One load balancer type."""
    item = found("load balancer type", catalog.LOAD_BALANCER_TYPES, identifier(request))
    return answer({"load_balancer_type": views.load_balancer_type(item)})


@routes.get("/isos")
async def list_isos(request: web.Request) -> web.Response:
    """The lab has no ISOs."""
    return listing(request, "isos", (), dict, BY_ID)


@routes.get(r"/isos/{id:[0-9]+}")
async def get_iso(request: web.Request) -> web.Response:
    """The lab has no ISOs."""
    raise not_found("iso", identifier(request))


@routes.get("/pricing")
async def get_pricing(request: web.Request) -> web.Response:
    """Prices of what is on offer, in EUR."""
    types = [views.server_type(item) for item in catalog.SERVER_TYPES.values()]
    balancer_types = [views.load_balancer_type(item) for item in catalog.LOAD_BALANCER_TYPES.values()]
    pricing = {
        "currency": "EUR",
        "vat_rate": f"{(catalog.VAT - 1) * 100:.2f}",
        "server_types": [{"id": item["id"], "name": item["name"], "prices": item["prices"]} for item in types],
        "image": {"price_per_gb_month": views.price(0.011)},
        "server_backup": {"percentage": "20.0000000000"},
        "volume": {"price_per_gb_month": views.price(0.044)},
        "primary_ips": [
            {
                "type": kind,
                "prices": [
                    {"location": place.name, "price_hourly": views.price(net / 624), "price_monthly": views.price(net)}
                    for place in catalog.LOCATIONS.values()
                ],
            }
            for kind, net in (("ipv4", 0.5), ("ipv6", 0.0))
        ],
        "floating_ip": {"price_monthly": views.price(3.0)},
        "floating_ips": [],
        "traffic": {"price_per_tb": views.price(0.0)},
        "load_balancer_types": [
            {"id": item["id"], "name": item["name"], "prices": item["prices"]} for item in balancer_types
        ],
    }
    return answer({"pricing": pricing})


@routes.get("/datacenters")
async def list_datacenters(request: web.Request) -> web.Response:
    """Data centers: gone since October 2026, unless the lab answers as before."""
    _check_datacenters(request)
    known = [views.datacenter(place) for place in catalog.LOCATIONS.values()]
    wanted = request.query.get("name")
    chosen = [item for item in known if wanted in (None, item["name"])]
    return listing(request, "datacenters", chosen, dict, {"id": lambda item: item["id"]})


@routes.get(r"/datacenters/{id:[0-9]+}")
async def get_datacenter(request: web.Request) -> web.Response:
    """One data center, as long as there are any."""
    _check_datacenters(request)
    for place in catalog.LOCATIONS.values():
        item = views.datacenter(place)
        if item["id"] == identifier(request):
            return answer({"datacenter": item})
    raise not_found("datacenter", identifier(request))


def _check_datacenters(request: web.Request) -> None:
    if not cloud(request).settings.datacenters:
        message = "the datacenters endpoint was removed; use locations"
        raise ApiError(410, "deprecated_api_endpoint", message, {"announcement": _ANNOUNCEMENT})
