# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published image files over HTTP: whole or in ranges, names that are known, nothing else."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from aiohttp import web

from lab import images

#: debian.raw.xz: name, then how it is packed; forms that do not exist yet are made on first use.
_PACKED = re.compile(r"(?P<image>[a-z0-9-]+)\.raw\.(?P<form>zst|gz|bz2|xz)(?:\.sha256)?")


class Published:
    """The files below ``directory`` and, with an image, that image in every form and the tarball for installimage."""

    def __init__(self, directory: Path, image: images.Image | None = None) -> None:
        self._directory = directory
        self._image = image

    async def find(self, name: str) -> Path | None:
        """The file of this name, packed first if need be."""
        own = self._directory / name
        if own.is_file():
            return own
        if self._image is None:
            return None
        match = _PACKED.fullmatch(name)
        if match and match["image"] == self._image.name:
            await asyncio.to_thread(images.variant, self._image, match["form"])
        if name.removesuffix(".sha256") == images.TARBALL:
            tarball = await asyncio.to_thread(images.ensure, "tarball")
            return tarball.dir / name
        path = self._image.dir / name
        known = {file.name for file in self._image.files.values()}
        return path if path.is_file() and (name.removesuffix(".sha256") in known or match) else None

    def names(self) -> list[str]:
        """What there is at present."""
        own = {path.name for path in self._directory.iterdir() if path.is_file()}
        image = set() if self._image is None else {images.TARBALL, *(path.name for path in self._image.files.values())}
        return sorted(own | image | {f"{name}.sha256" for name in image})

    def application(self) -> web.Application:
        """Serve them as /images/<name>; /images/ lists the names."""
        app = web.Application()

        async def get(request: web.Request) -> web.StreamResponse:
            name = request.match_info["name"]
            path = await self.find(name)
            if path is None:
                raise web.HTTPNotFound(text=f"no image file {name}\n")
            return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

        async def index(_request: web.Request) -> web.Response:
            return web.Response(text="".join(f"{name}\n" for name in self.names()))

        app.router.add_get(r"/images/{name:[A-Za-z0-9][A-Za-z0-9._-]*}", get)
        app.router.add_get("/images/", index)
        return app
