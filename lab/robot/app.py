# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Robot put together: one aiohttp application for one account."""

from __future__ import annotations

from aiohttp import web

from lab.robot import routes_firewall, routes_keys, routes_network, routes_servers, routes_vswitch
from lab.robot.account import Account
from lab.robot.gate import Gate
from lab.robot.http import ACCOUNT
from lab.robot.routes_boot import boot_routes


def build(account: Account, gate: Gate) -> web.Application:
    """The application, at the root path as the real service has it."""
    app = web.Application(middlewares=[gate.middleware()])
    app[ACCOUNT] = account
    for routes in (
        routes_servers.routes,
        boot_routes(),
        routes_keys.routes,
        routes_network.routes,
        routes_firewall.routes,
        routes_vswitch.routes,
    ):
        app.add_routes(routes)
    return app
