# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes that read actions: by id, in batches, of all objects of a kind, of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from lab.numbers import whole_number

from . import views
from .api_errors import invalid_input
from .cloud import found
from .http import answer, chosen, cloud, identifier, listing
from .resources import Action

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
    """One action."""
    return _answer(request, identifier(request), None)


@routes.get("/{kind:servers|images|load_balancers}/actions")
async def list_kind_actions(request: web.Request) -> web.Response:
    """The actions of all objects of a kind."""
    kind = request.match_info["kind"].removesuffix("s")
    return _listing(request, [item for item in cloud(request).engine.actions.values() if item.concerns(kind)])


@routes.get(r"/{kind:servers|images|load_balancers}/{owner:[0-9]+}/actions")
async def list_owner_actions(request: web.Request) -> web.Response:
    """The actions of one object."""
    owner = _owner(request)
    return _listing(request, [item for item in cloud(request).engine.actions.values() if item.concerns(*owner)])


@routes.get(r"/{kind:servers|images|load_balancers}/{owner:[0-9]+}/actions/{id:[0-9]+}")
async def get_owner_action(request: web.Request) -> web.Response:
    """One action of one object."""
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
