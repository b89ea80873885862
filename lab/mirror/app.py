# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror over HTTP: files whole or in ranges, below /mirror/."""

from __future__ import annotations

import asyncio

from aiohttp import web

from lab.images import ImageError

from . import content


def add_routes(app: web.Application) -> None:
    """Serve the mirror; a missing part is built while the first client waits for it."""

    async def get(request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        try:
            file = await asyncio.to_thread(content.find, path)
        except ImageError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
        if file is None:
            raise web.HTTPNotFound(text=f"the mirror has no {path}\n")
        return web.FileResponse(file, headers={"Content-Type": "application/octet-stream"})

    app.router.add_get("/mirror/{path:.+}", get)
