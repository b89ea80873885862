# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with whole disks: snapshots, rebuilds, other server types."""

from __future__ import annotations

from lab.api.cloud import Cloud, refuse_if
from lab.api.engine import Job
from lab.api.errors import ApiError, invalid_input, protected
from lab.api.model import Action, Image, Server, now
from lab.api.power import Power
from lab.api.schemas import ChangeType, CreateImage, Rebuild
from lab.api.servers import Servers, check_image, check_unlocked

_GB = 10**9


class Disks:
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
        chassis = self.cloud.chassis[server.id]

        async def work() -> None:
            server.status = "rebuilding"
            await chassis.cut_power()
            await chassis.machine.write_disk(image.file)
            server.image = image
            if body.user_data is not None:
                server.user_data = body.user_data
            await chassis.switch_on()

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

        chassis = self.cloud.chassis[server.id]

        async def work() -> None:
            # Hardware never changes, so the disk moves into a new machine.
            disk = self.cloud.storage / f"moving-{server.id}.raw"
            try:
                await chassis.machine.copy_disk(disk)
                await chassis.machine.destroy()
                server.server_type = wanted
                if body.upgrade_disk:
                    server.primary_disk_size = wanted.disk
                self.servers.install_machine(server, chassis)
                await chassis.machine.create(disk)
            finally:
                disk.unlink(missing_ok=True)

        resources = [("server", server.id)]
        return self.cloud.engine.start("change_server_type", server.name, resources, Job(work), server)

    def _start_copy(self, server: Server, image: Image) -> Action:
        target = self.cloud.storage / f"{image.id}.raw"
        allocated = 0

        async def work() -> None:
            nonlocal allocated
            allocated = await self.cloud.chassis[server.id].machine.copy_disk(target)

        def done() -> None:
            image.file = target
            image.image_size = round(allocated / _GB, 4)
            image.status = "available"

        def failed() -> None:
            del self.cloud.images[image.id]
            target.unlink(missing_ok=True)

        resources = [("image", image.id), ("server", server.id)]
        return self.cloud.engine.start("create_image", server.name, resources, Job(work, done, failed), server)
