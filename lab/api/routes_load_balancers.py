# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of load balancers and of what is done with them."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from lab.api import schemas, views
from lab.api.cloud import found
from lab.api.http import BY_NAME_AND_AGE, answer, body, cloud, identifier, listing, select
from lab.api.load_balancer_views import view
from lab.api.load_balancers import LoadBalancers, Start
from lab.api.model import LoadBalancer

_ONE = r"/load_balancers/{id:[0-9]+}"


def load_balancer_routes(balancers: LoadBalancers) -> web.RouteTableDef:
    """List, create, read, change, delete, and the actions."""
    routes = web.RouteTableDef()

    @routes.get("/load_balancers")
    async def list_all(request: web.Request) -> web.Response:
        """All load balancers; filters name, label_selector."""
        items = select(request, cloud(request).load_balancers.values())
        return listing(request, "load_balancers", items, partial(view, cloud(request)), BY_NAME_AND_AGE)

    @routes.post("/load_balancers")
    async def create(request: web.Request) -> web.Response:
        """Create a load balancer."""
        item, action = balancers.create(await body(request, schemas.LoadBalancerCreate))
        return answer({"load_balancer": view(cloud(request), item), "action": views.action(action)}, status=201)

    @routes.get(_ONE)
    async def get_one(request: web.Request) -> web.Response:
        """One load balancer."""
        return answer({"load_balancer": view(cloud(request), _one(request))})

    @routes.put(_ONE)
    async def update(request: web.Request) -> web.Response:
        """Rename or relabel."""
        item = _one(request)
        balancers.update(item, await body(request, schemas.NamedUpdate))
        return answer({"load_balancer": view(cloud(request), item)})

    @routes.delete(_ONE)
    async def delete(request: web.Request) -> web.Response:
        """Delete for good; an action since October 2026."""
        return answer({"action": views.action(balancers.delete(_one(request)))}, status=201)

    @routes.get(_ONE + "/metrics")
    async def metrics(request: web.Request) -> web.Response:
        """What went through: nothing, at each step of the time that was asked for."""
        _one(request)
        kinds = request.query.get("type", "").split(",")
        fields = {"type": kinds, "start": request.query.get("start"), "end": request.query.get("end")}
        wanted = schemas.parse(
            schemas.Metrics, fields | ({"step": request.query["step"]} if "step" in request.query else {})
        )
        return answer({"metrics": views.no_traffic(wanted.start, wanted.end, wanted.step, wanted.type)})

    for name, (model, start) in balancers.actions().items():
        _add_action(routes, name, model, start)
    return routes


def _add_action(routes: web.RouteTableDef, name: str, model: type[schemas.Body], start: Start) -> None:
    @routes.post(f"{_ONE}/actions/{name}")
    async def handler(request: web.Request) -> web.Response:
        item, wanted = _one(request), await body(request, model)
        return answer({"action": views.action(start(item, wanted))}, status=201)


def _one(request: web.Request) -> LoadBalancer:
    return found("load balancer", cloud(request).load_balancers, identifier(request))
