# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of servers and what is done with them, of actions, and of what the provider offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from lab.api.schemas import whole_number

from . import schemas, views
from .cloud_project import Cloud, found
from .http import BY_ID, BY_NAME, add_resource, answer, body, chosen, cloud, identifier, listing
from .metadata_only import MetadataOnlyResources
from .resources import LOAD_BALANCER_TYPES, LOCATIONS, SERVER_TYPES, VAT, Action, Server
from .schemas import ApiError, invalid_input, not_found
from .servers import Power, ServerDisks, Servers, StartAction, new_password

STATUSES = ("initializing", "starting", "running", "stopping", "off", "deleting", "migrating", "rebuilding", "unknown")
_ONE = r"/servers/{id:[0-9]+}"
_ACTIONS = _ONE + "/actions"
_WITH_PASSWORD = ("enable_rescue", "reset_password")


def server_routes(servers: Servers) -> web.RouteTableDef:
    routes = web.RouteTableDef()

    add_resource(
        routes, "server", lambda project: project.servers, view, choices={"status": STATUSES},
        model=schemas.ServerUpdate, update=lambda _project, server, wanted: servers.update(server, wanted),
    )  # fmt: skip

    @routes.post("/servers")
    async def create_server(request: web.Request) -> web.Response:
        created = servers.create(await body(request, schemas.ServerCreate))
        data = {
            "server": view(cloud(request), created.server),
            "action": views.action(created.action),
            "next_actions": [views.action(action) for action in created.next_actions],
            "root_password": created.root_password,
        }
        return answer(data, status=201)

    @routes.delete(_ONE)
    async def delete_server(request: web.Request) -> web.Response:
        return answer({"action": views.action(servers.delete(one(request)))})

    return routes


def action_routes(power: Power, resources: MetadataOnlyResources) -> web.RouteTableDef:
    """Actions of servers that need nothing but their fields."""
    routes = web.RouteTableDef()

    def add(name: str, model: type[schemas.Body], start: StartAction) -> None:
        @routes.post(f"{_ACTIONS}/{name}")
        async def handler(request: web.Request) -> web.Response:
            wanted = await body(request, model)
            data: dict[str, Any] = {"action": views.action(start(one(request), wanted))}
            if name in _WITH_PASSWORD:
                data["root_password"] = new_password()
            return answer(data, status=201)

    for name, (model, start) in (power.actions() | resources.server_actions()).items():
        add(name, model, start)
    return routes


def disk_routes(disks: ServerDisks) -> web.RouteTableDef:
    routes = web.RouteTableDef()

    @routes.post(f"{_ACTIONS}/create_image")
    async def create_image(request: web.Request) -> web.Response:
        image, action = disks.create_image(one(request), await body(request, schemas.CreateImage))
        return answer({"image": views.image(image), "action": views.action(action)}, status=201)

    @routes.post(f"{_ACTIONS}/rebuild")
    async def rebuild(request: web.Request) -> web.Response:
        server = one(request)
        action = disks.rebuild(server, await body(request, schemas.Rebuild))
        password = None if server.authorized_keys else new_password()
        return answer({"action": views.action(action), "root_password": password}, status=201)

    @routes.post(f"{_ACTIONS}/change_type")
    async def change_type(request: web.Request) -> web.Response:
        action = disks.change_type(one(request), await body(request, schemas.ChangeType))
        return answer({"action": views.action(action)}, status=201)

    return routes


def one(request: web.Request) -> Server:
    return cloud(request).server(identifier(request))


def view(project: Cloud, server: Server) -> dict[str, Any]:
    """A server as this lab shows it."""
    group = (
        None if server.placement_group is None else project.metadata_only["placement_group"].get(server.placement_group)
    )
    members = (
        [] if group is None else [item.id for item in project.servers.values() if item.placement_group == group.id]
    )
    return views.server(server, group, members, project.balancers_of(server), datacenters=project.settings.datacenters)


_SORT_KEYS: dict[str, Callable[[Action], Any]] = {
    "id": lambda action: action.id,
    "command": lambda action: action.command,
    "status": lambda action: action.status,
    "started": lambda action: action.started,
    "finished": lambda action: (action.finished is None, action.finished or action.started),
}

routes = web.RouteTableDef()


@routes.get("/actions")
async def list_actions(request: web.Request) -> web.Response:
    """The actions with the given ids; unknown ids are left out, and listing all is no longer possible."""
    if "id" not in request.query:
        raise invalid_input({"id": ["Missing data for required field."]})
    return _listing(request, cloud(request).engine.actions.values())


@routes.get(r"/actions/{id:[0-9]+}")
@routes.get(r"/{kind:servers|images|load_balancers}/actions/{id:[0-9]+}")
async def get_action(request: web.Request) -> web.Response:
    return _answer(request, identifier(request), None)


@routes.get("/{kind:servers|images|load_balancers}/actions")
async def list_kind_actions(request: web.Request) -> web.Response:
    kind = request.match_info["kind"].removesuffix("s")
    return _listing(request, [item for item in cloud(request).engine.actions.values() if item.concerns(kind)])


@routes.get(r"/{kind:servers|images|load_balancers}/{owner:[0-9]+}/actions")
async def list_owner_actions(request: web.Request) -> web.Response:
    owner = _owner(request)
    return _listing(request, [item for item in cloud(request).engine.actions.values() if item.concerns(*owner)])


@routes.get(r"/{kind:servers|images|load_balancers}/{owner:[0-9]+}/actions/{id:[0-9]+}")
async def get_owner_action(request: web.Request) -> web.Response:
    return _answer(request, identifier(request), _owner(request))


def _owner(request: web.Request) -> tuple[str, int]:
    kind, owner = request.match_info["kind"].removesuffix("s"), identifier(request, "owner")
    project = cloud(request)
    objects: dict[str, dict[int, Any]] = {
        "server": project.servers,
        "image": project.images,
        "load_balancer": project.load_balancers,
    }
    found(kind, objects[kind], owner)
    return kind, owner


def _answer(request: web.Request, action_id: int, owner: tuple[str, int] | None) -> web.Response:
    actions = cloud(request).engine.actions
    kind = request.match_info.get("kind", "").removesuffix("s")
    concerned = {
        key: item
        for key, item in actions.items()
        if (owner is None or item.concerns(*owner)) and (not kind or item.concerns(kind))
    }
    return answer({"action": views.action(found("action", concerned, action_id))})


def _listing(request: web.Request, actions: Iterable[Action]) -> web.Response:
    statuses = chosen(request, "status", ("running", "success", "error"))
    ids = request.query.getall("id", [])
    wrong = [text for text in ids if whole_number(text) is None]
    if wrong:
        raise invalid_input({"id": [f"'{wrong[0]}' is not an integer"]})
    wanted = {whole_number(text) for text in ids}
    items = [
        item for item in actions if (not wanted or item.id in wanted) and (not statuses or item.status in statuses)
    ]
    return listing(request, "actions", items, views.action, _SORT_KEYS)


_ANNOUNCEMENT = "https://docs.hetzner.cloud/changelog#2026-06-02-datacenters-deprecated"


def _add_offer(plural: str, items: Mapping[int, Any], view: Callable[[Any], dict[str, Any]]) -> None:
    """The list of all that is on offer of a kind, and one of it by its id."""
    key = plural.removesuffix("s")

    @routes.get(f"/{plural}")
    async def list_all(request: web.Request) -> web.Response:
        wanted = request.query.get("name")
        return listing(request, plural, [item for item in items.values() if wanted in (None, item.name)], view, BY_NAME)

    @routes.get(f"/{plural}/{{id:[0-9]+}}")
    async def get_one(request: web.Request) -> web.Response:
        return answer({key: view(found(key.replace("_", " "), items, identifier(request)))})


_add_offer("locations", LOCATIONS, views.location)
_add_offer("server_types", SERVER_TYPES, views.server_type)
_add_offer("load_balancer_types", LOAD_BALANCER_TYPES, views.load_balancer_type)


@routes.get("/isos")
async def list_isos(request: web.Request) -> web.Response:
    """The lab has no ISOs."""
    return listing(request, "isos", (), dict, BY_ID)


@routes.get(r"/isos/{id:[0-9]+}")
async def get_iso(request: web.Request) -> web.Response:
    raise not_found("iso", identifier(request))


@routes.get("/pricing")
async def get_pricing(request: web.Request) -> web.Response:
    """Prices of what is on offer, in EUR."""
    types = [views.server_type(item) for item in SERVER_TYPES.values()]
    balancer_types = [views.load_balancer_type(item) for item in LOAD_BALANCER_TYPES.values()]
    pricing = {
        "currency": "EUR",
        "vat_rate": f"{(VAT - 1) * 100:.2f}",
        "server_types": [{"id": item["id"], "name": item["name"], "prices": item["prices"]} for item in types],
        "image": {"price_per_gb_month": views.price(0.011)},
        "server_backup": {"percentage": "20.0000000000"},
        "volume": {"price_per_gb_month": views.price(0.044)},
        "primary_ips": [
            {
                "type": kind,
                "prices": [
                    {"location": place.name, "price_hourly": views.price(net / 624), "price_monthly": views.price(net)}
                    for place in LOCATIONS.values()
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
    known = [views.datacenter(place) for place in LOCATIONS.values()]
    wanted = request.query.get("name")
    chosen = [item for item in known if wanted in (None, item["name"])]
    return listing(request, "datacenters", chosen, dict, {"id": lambda item: item["id"]})


@routes.get(r"/datacenters/{id:[0-9]+}")
async def get_datacenter(request: web.Request) -> web.Response:
    _check_datacenters(request)
    for place in LOCATIONS.values():
        item = views.datacenter(place)
        if item["id"] == identifier(request):
            return answer({"datacenter": item})
    raise not_found("datacenter", identifier(request))


def _check_datacenters(request: web.Request) -> None:
    if not cloud(request).settings.datacenters:
        message = "the datacenters endpoint was removed; use locations"
        raise ApiError(410, "deprecated_api_endpoint", message, {"announcement": _ANNOUNCEMENT})
