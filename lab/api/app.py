# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API put together: one aiohttp application for one lab."""

from __future__ import annotations

from aiohttp import web

from lab.api import routes_actions, routes_catalog, routes_ssh_keys
from lab.api.books import Books
from lab.api.cloud import Cloud
from lab.api.control import Control
from lab.api.disks import Disks
from lab.api.gate import Gate
from lab.api.http import CLOUD
from lab.api.load_balancers import LoadBalancers
from lab.api.power import Power
from lab.api.routes_books import thin_routes
from lab.api.routes_images import image_routes
from lab.api.routes_load_balancers import load_balancer_routes
from lab.api.routes_servers import book_routes, disk_routes, power_routes, server_routes
from lab.api.servers import Servers


def build(cloud: Cloud, gate: Gate, control: Control) -> web.Application:
    """The application: the API below /v1, the lab's own routes below /_lab."""
    power = Power(cloud)
    servers = Servers(cloud, power)
    disks = Disks(cloud, servers, power)
    books = Books(cloud, servers)
    api = web.Application(middlewares=[gate.middleware()])
    for routes in (
        routes_catalog.routes,
        routes_ssh_keys.routes,
        routes_actions.routes,
        server_routes(servers),
        power_routes(power),
        disk_routes(disks),
        book_routes(books),
        image_routes(disks),
        thin_routes(books),
        load_balancer_routes(LoadBalancers(cloud)),
    ):
        api.add_routes(routes)
    own = web.Application(middlewares=[control.middleware()])
    own.add_routes(control.routes())
    app = web.Application()
    app[CLOUD] = cloud
    app.add_subapp("/v1", api)
    app.add_subapp("/_lab", own)
    return app
