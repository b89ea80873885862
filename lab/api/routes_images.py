# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of images."""

from __future__ import annotations

from aiohttp import web

from lab.api import schemas, views
from lab.api.cloud import found, refuse_if
from lab.api.disks import Disks
from lab.api.engine import Job
from lab.api.errors import ApiError, invalid_input
from lab.api.http import BY_NAME_AND_AGE, answer, body, chosen, cloud, identifier, listing, select
from lab.api.model import Image


def image_routes(disks: Disks) -> web.RouteTableDef:
    """The routes, on top of what can be done with disks."""
    routes = web.RouteTableDef()

    @routes.get("/images")
    async def list_images(request: web.Request) -> web.Response:
        """All images; filters type, status, bound_to, architecture, name, label_selector."""
        images = select(request, cloud(request).images.values())
        filters = {
            "type": ("system", "app", "snapshot", "backup"),
            "status": ("available", "creating", "unavailable"),
            "architecture": ("x86", "arm"),
        }
        for name, allowed in filters.items():
            values = chosen(request, name, allowed)
            images = [image for image in images if not values or getattr(image, name) in values]
        bound = set(request.query.getall("bound_to", []))
        images = [image for image in images if not bound or str(image.bound_to) in bound]
        return listing(request, "images", images, views.image, BY_NAME_AND_AGE)

    @routes.get(r"/images/{id:[0-9]+}")
    async def get_image(request: web.Request) -> web.Response:
        """One image."""
        return answer({"image": views.image(_image(request))})

    @routes.put(r"/images/{id:[0-9]+}")
    async def update_image(request: web.Request) -> web.Response:
        """Describe, relabel, or turn a backup into a snapshot."""
        image = _image(request)
        wanted = await body(request, schemas.ImageUpdate)
        refuse_if(image.type == "system", ApiError(403, "forbidden", "system images cannot be changed"))
        if wanted.description is not None:
            image.description = wanted.description
        if wanted.type is not None:
            image.type, image.bound_to = wanted.type, None
        if wanted.labels is not None:
            image.labels = dict(wanted.labels)
        return answer({"image": views.image(image)})

    @routes.delete(r"/images/{id:[0-9]+}")
    async def delete_image(request: web.Request) -> web.Response:
        """Delete a snapshot or backup."""
        disks.delete_image(_image(request))
        return web.Response(status=204)

    @routes.post(r"/images/{id:[0-9]+}/actions/change_protection")
    async def change_protection(request: web.Request) -> web.Response:
        """Protect a snapshot against deletion, or not."""
        image = _image(request)
        wanted = await body(request, schemas.ChangeDeleteProtection)
        refuse_if(image.type != "snapshot", invalid_input({"id": ["only snapshots can be protected"]}))

        def done() -> None:
            if wanted.delete is not None:
                image.delete_protected = wanted.delete

        engine = cloud(request).engine
        action = engine.start("change_protection", f"image-{image.id}", [("image", image.id)], Job(done=done))
        return answer({"action": views.action(action)}, status=201)

    return routes


def _image(request: web.Request) -> Image:
    return found("image", cloud(request).images, identifier(request))
