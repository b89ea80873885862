# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines download over HTTP: image files and the mirror, whole or in ranges."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from aiohttp import web

from lab.mirror import content

from . import images
from .errors import ImageError

#: debian.raw.xz: name, then how it is packed; forms that do not exist yet are made on first use.
_FORM = re.compile(r"(?P<image>[a-z0-9-]+)\.raw(?:\.(?P<form>zst|gz|bz2|xz))?(?:\.sha256)?")


#: Images beside the one the lab boots; built on first use.
OTHERS = ("debian13",)


class Published:
    """The files below ``directory`` and, with an image, that image and `OTHERS` in every form and the tarball."""

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
        if name.removesuffix(".sha256") == images.TARBALL:
            tarball = await asyncio.to_thread(images.ensure, "tarball")
            return tarball.dir / name
        match = _FORM.fullmatch(name)
        if match is None or match["image"] not in (self._image.name, *OTHERS):
            return None
        image = self._image
        if match["image"] != image.name:
            image = await asyncio.to_thread(images.ensure, match["image"])
        packed = await asyncio.to_thread(images.variant, image, match["form"] or "raw")
        return packed.with_name(name)

    def names(self) -> list[str]:
        """What there is at present."""
        own = {path.name for path in self._directory.iterdir() if path.is_file()}
        image = set() if self._image is None else {images.TARBALL, *(path.name for path in self._image.files.values())}
        image |= set() if self._image is None else {f"{name}.raw.zst" for name in OTHERS}
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
        _add_mirror(app)
        return app


def _add_mirror(app: web.Application) -> None:
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
