# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with whole disks (snapshots, rebuilds, other server types), and the routes of images."""

from __future__ import annotations

from aiohttp import web

from . import schemas, views
from .actions import Job
from .api_errors import ApiError, invalid_input, protected
from .cloud_project import Cloud, check_unlocked, found, refuse_if
from .http import add_resource, answer, body, cloud, identifier
from .resources import Action, Image, Server, now
from .schemas import ChangeType, CreateImage, Rebuild
from .server_power import Power
from .servers import Servers, check_image

_GB = 10**9
#: What a list of images can be filtered by.
_CHOICES = {
    "type": ("system", "app", "snapshot", "backup"),
    "status": ("available", "creating", "unavailable"),
    "architecture": ("x86", "arm"),
}


class ServerDisks:
    """Actions that read or replace a server's disk."""

    def __init__(self, cloud: Cloud, servers: Servers, power: Power) -> None:
        self.cloud = cloud
        self.servers = servers
        self.power = power

    def create_image(self, server: Server, body: CreateImage) -> tuple[Image, Action]:
        """Copy the disk into a new image, as it is at this moment."""
        check_unlocked(server)
        kind = body.type or "snapshot"
        refuse_if(
            kind == "backup" and server.backup_window is None,
            invalid_input({"type": ["backups are not enabled for this server"]}),
        )
        source = server.image
        image = Image(
            id=self.cloud.new_id("image"),
            type=kind,
            name=None,
            description=body.description or f"{server.name} {now():%Y-%m-%d %H:%M:%S}",
            architecture=server.server_type.architecture,
            disk_size=float(server.primary_disk_size),
            os_flavor=source.os_flavor if source else "unknown",
            os_version=source.os_version if source else None,
            created=now(),
            status="creating",
            created_from=(server.id, server.name),
            bound_to=server.id if kind == "backup" else None,
            labels=dict(body.labels or {}),
        )
        self.cloud.images[image.id] = image
        return image, self._start_copy(server, image)

    def delete_image(self, image: Image) -> None:
        """Remove a snapshot or backup with its bytes."""
        refuse_if(image.type == "system", ApiError(403, "forbidden", "system images cannot be deleted"))
        refuse_if(image.delete_protected, protected("image deletion"))
        refuse_if(image.status == "creating", ApiError(423, "locked", "image is still being created"))
        del self.cloud.images[image.id]
        if image.file is not None:
            image.file.unlink(missing_ok=True)

    def rebuild(self, server: Server, body: Rebuild) -> Action:
        """Overwrite the disk with an image and start from it."""
        refuse_if(server.protected, protected("server rebuild"))
        check_unlocked(server)
        image = self.cloud.image(body.image, server.server_type.architecture)
        check_image(image, server.server_type, server.primary_disk_size)
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            server.status = "rebuilding"
            await power_control.cut_power()
            await power_control.machine.write_disk(image.file)
            server.image = image
            if body.user_data is not None:
                server.user_data = body.user_data
            await power_control.switch_on()

        def settle() -> None:
            self.power.settle(server)

        resources = [("server", server.id), ("image", image.id)]
        return self.cloud.engine.start("rebuild_server", server.name, resources, Job(work, settle, settle), server)

    def change_type(self, server: Server, body: ChangeType) -> Action:
        """Move the server to other hardware, with the same disk or a larger one."""
        check_unlocked(server)
        refuse_if(
            server.status != "off",
            ApiError(422, "server_not_stopped", "server must be stopped before changing its type"),
        )
        wanted = self.cloud.server_type(body.server_type)
        refuse_if(
            wanted.architecture != server.server_type.architecture,
            ApiError(422, "invalid_server_type", f"{wanted.name} has another architecture"),
        )
        refuse_if(
            wanted.disk < server.primary_disk_size,
            ApiError(422, "invalid_server_type", f"the disk of {wanted.name} is smaller than the server's"),
        )
        refuse_if(
            server.location.name not in wanted.locations,
            invalid_input({"server_type": [f"{wanted.name} is sold in {', '.join(wanted.locations)}"]}),
        )

        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            # Hardware never changes, so the disk moves into a new machine.
            disk = self.cloud.storage / f"moving-{server.id}.raw"
            try:
                await power_control.machine.copy_disk(disk)
                await power_control.machine.destroy()
                server.server_type = wanted
                if body.upgrade_disk:
                    server.primary_disk_size = wanted.disk
                self.servers.install_machine(server, power_control)
                await power_control.machine.create(disk)
            finally:
                disk.unlink(missing_ok=True)

        resources = [("server", server.id)]
        return self.cloud.engine.start("change_server_type", server.name, resources, Job(work), server)

    def _start_copy(self, server: Server, image: Image) -> Action:
        target = self.cloud.storage / f"{image.id}.raw"
        allocated = 0

        async def work() -> None:
            nonlocal allocated
            allocated = await self.cloud.power_control[server.id].machine.copy_disk(target)

        def done() -> None:
            image.file = target
            image.image_size = round(allocated / _GB, 4)
            image.status = "available"

        def failed() -> None:
            del self.cloud.images[image.id]
            target.unlink(missing_ok=True)

        resources = [("image", image.id), ("server", server.id)]
        return self.cloud.engine.start("create_image", server.name, resources, Job(work, done, failed), server)


def image_routes(disks: ServerDisks) -> web.RouteTableDef:
    """The routes, on top of what can be done with disks."""
    routes = web.RouteTableDef()

    def update(_project: Cloud, image: Image, wanted: schemas.ImageUpdate) -> None:
        """Describe, relabel, or turn a backup into a snapshot."""
        refuse_if(image.type == "system", ApiError(403, "forbidden", "system images cannot be changed"))
        if wanted.description is not None:
            image.description = wanted.description
        if wanted.type is not None:
            image.type, image.bound_to = wanted.type, None
        if wanted.labels is not None:
            image.labels = dict(wanted.labels)

    add_resource(
        routes, "image", lambda project: project.images, lambda _project, image: views.image(image),
        filters=["bound_to"], choices=_CHOICES, model=schemas.ImageUpdate, update=update,
        delete=lambda _project, image: disks.delete_image(image),
    )  # fmt: skip

    @routes.post(r"/images/{id:[0-9]+}/actions/change_protection")
    async def change_protection(request: web.Request) -> web.Response:
        """Protect a snapshot against deletion, or not."""
        image = found("image", cloud(request).images, identifier(request))
        wanted = await body(request, schemas.ChangeDeleteProtection)
        refuse_if(image.type != "snapshot", invalid_input({"id": ["only snapshots can be protected"]}))

        def done() -> None:
            if wanted.delete is not None:
                image.delete_protected = wanted.delete

        engine = cloud(request).engine
        action = engine.start("change_protection", f"image-{image.id}", [("image", image.id)], Job(done=done))
        return answer({"action": views.action(action)}, status=201)

    return routes
