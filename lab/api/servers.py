# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers: creating, changing and deleting them, their power and rescue, their disks; and the routes of images."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from aiohttp import web

from lab.machines.base import Firmware, Machine, OnOff
from lab.machines.disks import DiskSpec, Hardware
from lab.power_control import ServerPower

from . import schemas, views
from .actions import ActionFailedError, Job
from .cloud_project import Cloud, check_name, check_unlocked, found, refuse_if, update_named
from .http import add_resource, answer, body, cloud, identifier
from .networks import Networks, PrimaryIps
from .resources import DISK_GB_BYTES, Action, ArmedRescue, Image, Location, Server, ServerType, now
from .schemas import (
    ApiError,
    AttachToNetwork,
    ChangeType,
    CreateImage,
    EnableRescue,
    Rebuild,
    ServerCreate,
    ServerUpdate,
    invalid_input,
    limit_exceeded,
    no_room,
    protected,
    unavailable,
)

PLACEMENT_GROUP_SIZE = 10
_NAME_TAKEN = "server name is already used"
StartAction = Callable[[Server, Any], Action]


@dataclass(frozen=True)
class Created:
    """The answer to a create request."""

    server: Server
    action: Action
    next_actions: list[Action] = field(default_factory=list)
    root_password: str | None = None


def check_image(image: Image, server_type: ServerType, disk_gb: int) -> None:
    """Refuse an image that this type cannot boot or hold."""
    refuse_if(
        image.status != "available", invalid_input({"image": [f"image {image.id} is {image.status}, not available"]})
    )
    refuse_if(
        image.architecture != server_type.architecture,
        invalid_input(
            {
                "image": [
                    f"image {image.id} is for architecture {image.architecture}, "
                    f"server type {server_type.name} has {server_type.architecture}"
                ]
            }
        ),
    )
    refuse_if(
        image.disk_size > disk_gb,
        invalid_input(
            {"image": [f"image {image.id} needs a disk of {image.disk_size:g} GB, there are {disk_gb} GB"]},
            "image disk is bigger than server type disk",
        ),
    )


class Servers:
    """The life of servers, from create to delete."""

    def __init__(self, cloud: Cloud, power: Power) -> None:
        self.cloud = cloud
        self.power = power
        self.addresses = PrimaryIps(cloud)
        self.networks = Networks(cloud)

    def create(self, body: ServerCreate) -> Created:
        """Create a server, and start it unless the request says otherwise."""
        cloud = self.cloud
        check_name(cloud.servers, body.name, _NAME_TAKEN)
        server_type = cloud.server_type(body.server_type)
        image = cloud.image(body.image, server_type.architecture)
        location = self._location(body, server_type)
        check_image(image, server_type, server_type.disk)
        keys = [cloud.ssh_key(wanted) for wanted in body.ssh_keys or ()]
        self._check_references(body, server_type)
        location = self._with_room(server_type, location, fixed=(body.location, body.datacenter) != (None, None))
        named = self.addresses.wanted(body.public_net, location)
        server = Server(
            id=cloud.new_id("server"),
            name=body.name,
            index=named["ipv4"].index if "ipv4" in named else cloud.free_index(),
            created=now(),
            server_type=server_type,
            location=location,
            image=image,
            labels=dict(body.labels or {}),
            authorized_keys=tuple(key.public_key for key in keys),
            user_data=body.user_data,
            primary_disk_size=server_type.disk,
            firewalls=[reference.firewall for reference in body.firewalls or ()],
            placement_group=body.placement_group,
        )
        for network in body.networks or ():
            server.private_net.append(self.networks.plan(server, AttachToNetwork(network=network)))
        cloud.servers[server.id] = server
        self.addresses.give(server, named, body.public_net)
        power_control = cloud.power_control[server.id] = ServerPower(server, cloud.delays, cloud.faults)
        start = body.start_after_create is not False
        action = self._start_create(server, power_control, start)
        next_actions = [self.power.switch_on(server, action)] if start else []
        return Created(server, action, next_actions, None if keys else new_password())

    def update(self, server: Server, body: ServerUpdate) -> None:
        update_named(self.cloud.servers, server, body, _NAME_TAKEN)

    def delete(self, server: Server) -> Action:
        refuse_if(server.protected, protected("server deletion"))
        check_unlocked(server)
        cloud, power_control = self.cloud, self.cloud.power_control[server.id]

        async def work() -> None:
            server.status = "deleting"
            await power_control.destroy()

        def done() -> None:
            del cloud.servers[server.id], cloud.power_control[server.id]
            self.addresses.release(server)
            for balancer in cloud.load_balancers.values():
                balancer.targets = [item for item in balancer.targets if item.value != server.id]

        job = Job(work, done, lambda: self.power.settle(server))
        return cloud.start(server, "delete_server", job)

    def hardware(self, server: Server) -> Hardware:
        """What this server's machine consists of."""
        return Hardware(
            machine_id=server.id,
            name=server.name,
            cores=server.server_type.cores,
            memory_mib=server.server_type.memory * 1024,
            disks=(DiskSpec(server.primary_disk_size * DISK_GB_BYTES),),
            mac=self.cloud.backend.mac(server.index),
            ipv4=self.cloud.backend.address(server.index),
            ipv6=server.ipv6.ip if server.ipv6 else "",
            public_ipv4=server.ipv4 is not None,
            architecture=server.server_type.architecture,
        )

    def install_machine(self, server: Server, power_control: ServerPower) -> None:
        """Build the machine of this server, and give it to its power control."""
        hardware = self.hardware(server)

        def make(firmware: Firmware, on_off: OnOff) -> Machine:
            machine = self.cloud.backend.machine(hardware, firmware, on_off)
            machine.private = lambda: self.networks.places(server)
            return machine

        power_control.install(make)

    def _start_create(self, server: Server, power_control: ServerPower, start: bool) -> Action:
        image = server.image
        if image is None:
            raise RuntimeError(f"server {server.name} was created without an image")

        async def work() -> None:
            self.install_machine(server, power_control)
            await power_control.machine.create(image.file)

        def done() -> None:
            server.status = "starting" if start else "off"

        resources = [("server", server.id), ("image", image.id)]
        job = Job(work, done, lambda: self.power.settle(server))
        return self.cloud.engine.start("create_server", server.name, resources, job, holds=server)

    def _location(self, body: ServerCreate, server_type: ServerType) -> Location:
        refuse_if(
            body.datacenter is not None and not self.cloud.settings.datacenters,
            invalid_input({"datacenter": ["Unknown field."]}, "unknown field name 'datacenter'"),
        )
        wanted = body.location
        if wanted is None and body.datacenter is not None:
            wanted = str(body.datacenter).partition("-")[0]
        location = self.cloud.location(server_type.locations[0] if wanted is None else wanted)
        refuse_if(
            location.name not in server_type.locations,
            invalid_input(
                {"server_type": [f"{server_type.name} is sold in {', '.join(server_type.locations)}"]},
                "unsupported location for server type",
            ),
        )
        return location

    def _with_room(self, server_type: ServerType, location: Location, fixed: bool) -> Location:
        """Where the server will be; the API chooses among all locations of the type when none was asked for."""
        places = [location] if fixed else [self.cloud.location(name) for name in server_type.locations]
        fault = None
        for place in places:
            fault = self.cloud.faults.stock(server_type.name, place.name)
            if fault is None:
                return place
        raise no_room(fault.code if fault else "resource_unavailable")

    def _check_references(self, body: ServerCreate, server_type: ServerType) -> None:
        cloud = self.cloud
        for reference in body.firewalls or ():
            cloud.metadata_only_reference("firewall", reference.firewall, "firewalls")
        for network in body.networks or ():
            cloud.metadata_only_reference("network", network, "networks")
        for volume in body.volumes or ():
            cloud.metadata_only_reference("volume", volume, "volumes")
        if body.placement_group is not None:
            self.check_placement(body.placement_group)
        net = body.public_net
        refuse_if(
            net is not None
            and not (net.enable_ipv4 or net.enable_ipv6 or body.networks)
            and body.start_after_create is not False,
            invalid_input({"public_net": ["a server that starts needs a public or a private network"]}),
        )
        refuse_if(
            len(cloud.servers) >= cloud.settings.server_limit,
            limit_exceeded("project_limit", f"server limit of {cloud.settings.server_limit} exceeded"),
        )
        refuse_if(
            server_type.architecture != "x86" and cloud.backend.kind != "dry",
            unavailable(
                f"error during placement: a lab of kind {cloud.backend.kind} has no {server_type.name} machines"
            ),
        )

    def check_placement(self, group: int) -> None:
        """Refuse a placement group that does not exist or is full."""
        self.cloud.metadata_only_reference("placement_group", group, "placement_group")
        members = sum(server.placement_group == group for server in self.cloud.servers.values())
        refuse_if(
            members >= PLACEMENT_GROUP_SIZE,
            limit_exceeded("placement_group_limit", f"a placement group holds {PLACEMENT_GROUP_SIZE} servers"),
        )


def new_password() -> str:
    return secrets.token_urlsafe(15)


class Power:
    """All actions on a server that need its power switch or its boot order."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def actions(self) -> dict[str, tuple[type[schemas.Body], StartAction]]:
        """Route name, body and starter of every action."""
        return {
            "poweron": (schemas.Empty, self.power_on),
            "poweroff": (schemas.Empty, self.power_off),
            "shutdown": (schemas.Empty, self.shutdown),
            "reboot": (schemas.Empty, self.reboot),
            "reset": (schemas.Empty, self.reset),
            "enable_rescue": (EnableRescue, self.enable_rescue),
            "disable_rescue": (schemas.Empty, self.disable_rescue),
            "reset_password": (schemas.Empty, self.reset_password),
        }

    def settle(self, server: Server) -> None:
        """Set the status to running or off, by the power."""
        server.status = "running" if self.cloud.power_control[server.id].powered else "off"

    def power_on(self, server: Server, _body: object = None) -> Action:
        """Switch on; without effect on a running server."""
        if self.cloud.power_control[server.id].powered:
            return self.cloud.start(server, "start_server", Job())
        return self.switch_on(server)

    def power_off(self, server: Server, _body: object = None) -> Action:
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            if power_control.powered:
                server.status = "stopping"
            await power_control.cut_power()

        return self._settled(server, "stop_server", work)

    def reset(self, server: Server, _body: object = None) -> Action:
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            server.status = "starting"
            await power_control.reset()

        return self._settled(server, "reset_server", work)

    def shutdown(self, server: Server, _body: object = None) -> Action:
        """Press the power button; success only means that it was pressed."""
        return self.cloud.start(server, "shutdown_server", Job(self.cloud.power_control[server.id].press_power_button))

    def reboot(self, server: Server, _body: object = None) -> Action:
        """Ask the guest to reboot; a guest that ignores it goes on."""
        return self.cloud.start(server, "reboot_server", Job(self.cloud.power_control[server.id].request_reboot))

    def enable_rescue(self, server: Server, body: EnableRescue) -> Action:
        """Arm the rescue for the next boot; nothing reboots."""
        check_unlocked(server)
        missing = [key for key in body.ssh_keys or () if key not in self.cloud.ssh_keys]
        refuse_if(bool(missing), invalid_input({"ssh_keys": [f"SSH key '{key}' not found" for key in missing]}))
        keys = tuple(self.cloud.ssh_keys[key].public_key for key in body.ssh_keys or ())
        lifetime = timedelta(seconds=self.cloud.settings.rescue_lifetime)

        def done() -> None:
            server.rescue = ArmedRescue(keys, now() + lifetime)

        return self.cloud.start(server, "enable_rescue", Job(done=done))

    def disable_rescue(self, server: Server, _body: object = None) -> Action:
        return self.cloud.start(server, "disable_rescue", Job(done=partial(setattr, server, "rescue", None)))

    def reset_password(self, server: Server, _body: object = None) -> Action:
        """Needs the QEMU guest agent, which no guest of the lab runs: accepted, then failing, as without an agent."""

        async def work() -> None:
            raise ActionFailedError("action_failed", "the guest agent does not answer")

        return self.cloud.start(server, "reset_password", Job(work))

    def switch_on(self, server: Server, after: Action | None = None) -> Action:
        """Switch on, as soon as the action ``after`` is through."""
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            server.status = "starting"
            await power_control.switch_on()

        return self._settled(server, "start_server", work, after)

    def _settled(
        self, server: Server, command: str, work: Callable[[], Awaitable[None]], after: Action | None = None
    ) -> Action:
        """An action at whose end the status follows from the power."""
        settle = partial(self.settle, server)
        return self.cloud.start(server, command, Job(work, settle, settle), after)


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

        return self.cloud.start(server, "change_server_type", Job(work))

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
