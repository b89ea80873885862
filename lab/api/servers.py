# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creating, changing and deleting servers."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from lab.machines.base import Firmware, Machine, OnOff
from lab.machines.disks import DiskSpec, Hardware

from .actions import Job
from .api_errors import invalid_input, limit_exceeded, no_room, protected, unavailable
from .cloud_project import Cloud, check_name, check_unlocked, refuse_if, update_named
from .networks import Networks, PrimaryIps
from .resources import DISK_GB_BYTES, Action, Image, Location, Server, ServerType, now
from .schemas import AttachToNetwork, ServerCreate, ServerUpdate
from .server_power import Power, ServerPower

PLACEMENT_GROUP_SIZE = 10
_NAME_TAKEN = "server name is already used"


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
        return cloud.engine.start("delete_server", server.name, [("server", server.id)], job, holds=server)

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
