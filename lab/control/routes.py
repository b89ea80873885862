# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own routes below /_lab: faults, delays, requests, machines. Not part of the emulated API."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from pydantic import ValidationError

from lab.api import schemas
from lab.api.api_errors import ApiError
from lab.api.auth import Bucket, CloudAuth
from lab.api.cloud import Cloud
from lab.api.http import answer, identifier, read_json

from .cluster_routes import ClusterRoutes
from .dedicated import DedicatedControl, LimitBody
from .machine_routes import MachineRoutes


class ControlRoutes:
    """Handlers of the lab's own routes."""

    def __init__(
        self, cloud: Cloud, auth: CloudAuth, about: dict[str, Any], robot: DedicatedControl, cluster: ClusterRoutes
    ) -> None:
        self.cloud = cloud
        self.auth = auth
        self.about = about
        self.robot = robot
        self.cluster = cluster
        self.machine_routes = MachineRoutes(cloud, robot)

    def routes(self) -> web.RouteTableDef:
        """All routes; they need the token, cost no rate limit and meet no faults."""
        routes = web.RouteTableDef()
        table = (
            ("GET", "/status", self.status),
            ("GET", "/delays", self.delays),
            ("GET", "/faults", self.faults),
            ("POST", "/faults", self.add_faults),
            ("DELETE", "/faults", self.clear_faults),
            ("GET", "/requests", self.requests),
            ("DELETE", "/requests", self.forget_requests),
            ("POST", "/bucket", self.drain),
            ("GET", "/machines", self.machines),
            ("GET", "/machines/{name}/console", self.console),
            ("POST", "/dedicated", self.add_dedicated),
            ("DELETE", r"/dedicated/{id:[0-9]+}", self.remove_dedicated),
            ("GET", r"/dedicated/{id:[0-9]+}/disks", self.dedicated_disks),
            ("POST", "/robot/limits", self.limit_robot),
            ("DELETE", "/robot/limits", self.unlimit_robot),
        )
        for method, path, handler in table:
            routes.route(method, path)(handler)
        self.cluster.add_to(routes)
        self.machine_routes.add_to(routes)
        return routes

    def middleware(self) -> Any:
        """Token and error envelope for these routes."""

        @web.middleware
        async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
            try:
                if self.auth.access(request) != "write":
                    raise ApiError(401, "unauthorized", "the lab's own routes need its read-write token")
                return await handler(request)
            except ValidationError as error:
                refusal = schemas.refusal(error)
                return answer(refusal.body(), refusal.status)
            except ApiError as error:
                return answer(error.body(), error.status)

        return guard

    async def status(self, _request: web.Request) -> web.Response:
        """What this lab is."""
        counts = {"servers": len(self.cloud.servers), "dedicated": len(self.robot.account.servers)}
        return answer(self.about | counts)

    async def delays(self, _request: web.Request) -> web.Response:
        """The platform's own delays so far, per machine."""
        return answer(self.cloud.delays.report())

    async def faults(self, _request: web.Request) -> web.Response:
        """The script and how often each fault struck."""
        return answer({"faults": self.cloud.faults.report()})

    async def add_faults(self, request: web.Request) -> web.Response:
        """Append to the script: one fault or a list of faults."""
        self.cloud.faults.load(await read_json(request))
        await self.robot.faults_added()
        return answer({"faults": self.cloud.faults.report()}, status=201)

    async def clear_faults(self, _request: web.Request) -> web.Response:
        """Forget the script; stuck actions go on, a rotated password is good again."""
        self.cloud.faults.clear()
        self.robot.faults_cleared()
        return web.Response(status=204)

    async def requests(self, _request: web.Request) -> web.Response:
        """Every API request since the start, or since the last DELETE."""
        return answer({"requests": list(self.auth.requests)})

    async def forget_requests(self, _request: web.Request) -> web.Response:
        """Empty the log of requests."""
        self.auth.requests.clear()
        return web.Response(status=204)

    async def drain(self, request: web.Request) -> web.Response:
        """Leave ``remaining`` requests in the bucket, as if another client had spent the rest."""
        wanted = await read_json(request)
        remaining = wanted.get("remaining") if isinstance(wanted, dict) else None
        if not isinstance(remaining, int) or remaining < 0:
            raise ApiError(422, "invalid_input", "remaining must be an integer of at least 0")
        bucket: Bucket = self.auth.project
        bucket.drain(remaining)
        return answer(bucket.headers())

    async def machines(self, _request: web.Request) -> web.Response:
        """Machines behind the servers of both APIs: power, boots, address."""
        rows: list[dict[str, Any]] = []
        for server in self.cloud.servers.values():
            power_control = self.cloud.power_control[server.id]
            rows.append(
                {
                    "id": server.id,
                    "name": server.name,
                    "kind": "cloud",
                    "status": server.status,
                    "locked": server.locked,
                    "rescue_enabled": server.armed_rescue() is not None,
                    "address": self.cloud.backend.address(server.index),
                    "powered": power_control.powered,
                    "running": power_control.running,
                    "boot_order": list(power_control.boot_order),
                    "boots": [
                        {
                            "at": boot.at.timestamp(),
                            "source": boot.source,
                            "authorized_keys": list(boot.authorized_keys),
                        }
                        for boot in server.boots
                    ],
                }
            )
        return answer({"machines": rows + self.robot.rows()})

    async def console(self, request: web.Request) -> web.Response:
        """What a machine printed since it was switched on."""
        return web.Response(text=self.machine_routes.power_control(request.match_info["name"]).console())

    async def add_dedicated(self, request: web.Request) -> web.Response:
        """Build dedicated servers: a list of descriptions, or one."""
        return answer({"machines": await self.robot.add(await read_json(request))}, status=201)

    async def remove_dedicated(self, request: web.Request) -> web.Response:
        """Take a dedicated server away."""
        await self.robot.remove(identifier(request))
        return web.Response(status=204)

    async def dedicated_disks(self, request: web.Request) -> web.Response:
        """The disks of a dedicated server, with digests of their content now."""
        return answer({"disks": await self.robot.digests(identifier(request))})

    async def limit_robot(self, request: web.Request) -> web.Response:
        """Leave only so many requests of one of Robot's routes, as if others had made the rest."""
        return answer(self.robot.leave(LimitBody.model_validate(await read_json(request))))

    async def unlimit_robot(self, _request: web.Request) -> web.Response:
        """Forget Robot's counts of requests and failed logins."""
        self.robot.clear()
        return web.Response(status=204)
