# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own routes for its control plane, which is started on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from lab.api.api_errors import ApiError
from lab.api.http import answer, read_json
from lab.cache import Progress
from lab.cluster.control_plane import Adopt, ControlPlane
from lab.cluster.programs import ensure
from lab.errors import ClusterError


class ClusterRoutes:
    """At most one control plane, below ``folder``."""

    def __init__(self, folder: Path, host: str, adopt: Adopt, progress: Progress) -> None:
        """As ControlPlane; nothing is started yet."""
        self._folder = folder
        self._host = host
        self._adopt = adopt
        self._progress = progress
        self._plane: ControlPlane | None = None
        self._lock = asyncio.Lock()

    def add_to(self, routes: web.RouteTableDef) -> None:
        """Beside the other routes of the lab."""
        routes.get("/cluster")(self.show)
        routes.post("/cluster")(self.up)
        routes.delete("/cluster")(self.down)
        routes.post("/cluster/server")(self.serve)
        routes.post("/cluster/signing")(self.sign)

    async def close(self) -> None:
        """Take it down."""
        async with self._lock:
            if self._plane is not None:
                await self._plane.close()
            self._plane = None

    async def show(self, _request: web.Request) -> web.Response:
        """Where it is and what of it runs, or null."""
        return answer({"cluster": self._plane.about() if self._plane else None})

    async def up(self, _request: web.Request) -> web.Response:
        """Start it, unless it is up."""
        async with self._lock:
            if self._plane is None:
                try:
                    programs = await asyncio.to_thread(ensure, self._progress)
                    plane = ControlPlane(programs, self._folder, self._host, self._adopt)
                    await plane.start()
                except ClusterError as error:
                    raise ApiError(500, "cluster", str(error)) from error
                self._plane = plane
            return answer(self._plane.about(), status=201)

    async def down(self, _request: web.Request) -> web.Response:
        """End it and remove its files."""
        await self.close()
        return web.Response(status=204)

    async def serve(self, request: web.Request) -> web.Response:
        """{"on": bool}: switch the API server on or off."""
        wanted = (await _body(request)).get("on")
        if not isinstance(wanted, bool):
            raise ApiError(422, "invalid_input", "on must be true or false")
        return await self._change(lambda plane: plane.serve(wanted))

    async def sign(self, request: web.Request) -> web.Response:
        """{"seconds": int}: how long certificates are valid that are signed from now on."""
        seconds = (await _body(request)).get("seconds")
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
            raise ApiError(422, "invalid_input", "seconds must be an integer of at least 1")
        return await self._change(lambda plane: plane.sign_for(seconds))

    async def _change(self, change: Callable[[ControlPlane], Awaitable[None]]) -> web.Response:
        async with self._lock:
            if self._plane is None:
                raise ApiError(404, "not_found", "this lab has no control plane")
            try:
                await change(self._plane)
            except ClusterError as error:
                raise ApiError(500, "cluster", str(error)) from error
            return answer(self._plane.about())


async def _body(request: web.Request) -> dict[str, object]:
    body = await read_json(request)
    return body if isinstance(body, dict) else {}
