# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of servers and of what is done with them."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from . import schemas, views
from .http import BY_NAME_AND_AGE, answer, body, chosen, cloud, identifier, listing, select
from .metadata_only import MetadataOnlyResources
from .power import Power
from .resources import Action, Server
from .server_disks import ServerDisks
from .servers import Servers, new_password

STATUSES = ("initializing", "starting", "running", "stopping", "off", "deleting", "migrating", "rebuilding", "unknown")
_ONE = r"/servers/{id:[0-9]+}"
_ACTIONS = _ONE + "/actions"


def server_routes(servers: Servers) -> web.RouteTableDef:
    """List, create, read, change, delete."""
    routes = web.RouteTableDef()

    @routes.get("/servers")
    async def list_servers(request: web.Request) -> web.Response:
        """All servers; filters name, label_selector, status."""
        items = select(request, cloud(request).servers.values())
        statuses = chosen(request, "status", STATUSES)
        items = [item for item in items if not statuses or item.status in statuses]
        return listing(request, "servers", items, lambda item: view(request, item), BY_NAME_AND_AGE)

    @routes.post("/servers")
    async def create_server(request: web.Request) -> web.Response:
        """Create a server."""
        created = servers.create(await body(request, schemas.ServerCreate))
        data = {
            "server": view(request, created.server),
            "action": views.action(created.action),
            "next_actions": [views.action(action) for action in created.next_actions],
            "root_password": created.root_password,
        }
        return answer(data, status=201)

    @routes.get(_ONE)
    async def get_server(request: web.Request) -> web.Response:
        """One server."""
        return answer({"server": view(request, one(request))})

    @routes.put(_ONE)
    async def update_server(request: web.Request) -> web.Response:
        """Rename or relabel."""
        server = one(request)
        servers.update(server, await body(request, schemas.ServerUpdate))
        return answer({"server": view(request, server)})

    @routes.delete(_ONE)
    async def delete_server(request: web.Request) -> web.Response:
        """Delete permanently."""
        return answer({"action": views.action(servers.delete(one(request)))})

    return routes


def power_routes(power: Power) -> web.RouteTableDef:
    """Power switch and rescue."""
    routes = web.RouteTableDef()

    def plain(name: str, start: Callable[[Server], Action]) -> None:
        async def handler(request: web.Request) -> web.Response:
            await body(request, schemas.Empty)
            return _started(start(one(request)))

        routes.post(f"{_ACTIONS}/{name}")(handler)

    plain("poweron", power.power_on)
    plain("poweroff", power.power_off)
    plain("shutdown", power.shutdown)
    plain("reboot", power.reboot)
    plain("reset", power.reset)
    plain("disable_rescue", power.disable_rescue)

    @routes.post(f"{_ACTIONS}/enable_rescue")
    async def enable_rescue(request: web.Request) -> web.Response:
        """Arm the rescue for the next boot."""
        wanted = await body(request, schemas.EnableRescue)
        action = power.enable_rescue(one(request), wanted)
        return answer({"action": views.action(action), "root_password": new_password()}, status=201)

    @routes.post(f"{_ACTIONS}/reset_password")
    async def reset_password(request: web.Request) -> web.Response:
        """Ask the guest agent for a new password."""
        await body(request, schemas.Empty)
        action = power.reset_password(one(request))
        return answer({"action": views.action(action), "root_password": new_password()}, status=201)

    return routes


def disk_routes(disks: ServerDisks) -> web.RouteTableDef:
    """Snapshots, rebuilds, other types."""
    routes = web.RouteTableDef()

    @routes.post(f"{_ACTIONS}/create_image")
    async def create_image(request: web.Request) -> web.Response:
        """Make an image of the disk."""
        image, action = disks.create_image(one(request), await body(request, schemas.CreateImage))
        return answer({"image": views.image(image), "action": views.action(action)}, status=201)

    @routes.post(f"{_ACTIONS}/rebuild")
    async def rebuild(request: web.Request) -> web.Response:
        """Overwrite the disk with an image."""
        server = one(request)
        action = disks.rebuild(server, await body(request, schemas.Rebuild))
        password = None if server.authorized_keys else new_password()
        return answer({"action": views.action(action), "root_password": password}, status=201)

    @routes.post(f"{_ACTIONS}/change_type")
    async def change_type(request: web.Request) -> web.Response:
        """Give the server another type."""
        return _started(disks.change_type(one(request), await body(request, schemas.ChangeType)))

    return routes


def metadata_only_action_routes(resources: MetadataOnlyResources) -> web.RouteTableDef:
    """Actions that only change what clients can read."""
    routes = web.RouteTableDef()

    def add(name: str, model: type[schemas.Body], start: Callable[[Server, schemas.Body], Action]) -> None:
        async def handler(request: web.Request) -> web.Response:
            wanted = await body(request, model)
            return _started(start(one(request), wanted))

        routes.post(f"{_ACTIONS}/{name}")(handler)

    for name, (model, start) in resources.server_actions().items():
        add(name, model, start)
    return routes


def one(request: web.Request) -> Server:
    """The server in the path."""
    return cloud(request).server(identifier(request))


def view(request: web.Request, server: Server) -> dict[str, object]:
    """A server as this lab shows it."""
    project = cloud(request)
    group = (
        None if server.placement_group is None else project.metadata_only["placement_group"].get(server.placement_group)
    )
    members = (
        [] if group is None else [item.id for item in project.servers.values() if item.placement_group == group.id]
    )
    return views.server(server, group, members, project.balancers_of(server), datacenters=project.settings.datacenters)


def _started(action: Action) -> web.Response:
    return answer({"action": views.action(action)}, status=201)
