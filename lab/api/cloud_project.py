# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One emulated project: its objects, its platform, and how objects are found."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lab.api.schemas import whole_number
from lab.delays import Delays
from lab.faults import Faults
from lab.machines.backend import Backend
from lab.power_control import PowerControl, ServerPower

from . import resources, schemas
from .actions import Engine, Job
from .resources import Image, LoadBalancer, Location, MetadataOnly, PrimaryIp, Server, ServerType, SshKey, Target
from .schemas import ApiError, NamedUpdate, ServerUpdate, invalid_input, locked, not_found, not_unique


class Named(Protocol):
    """A resource with a name."""

    @property
    def name(self) -> str:
        """The name."""


T = TypeVar("T")
N = TypeVar("N", bound=Named)


@dataclass(frozen=True)
class Settings:
    """The settings of one lab."""

    limit: int = 3600
    refill_per_second: float = 1.0
    rescue_lifetime: float = 3600.0
    server_limit: int = 200
    load_balancer_limit: int = 50
    #: Answer as the API did before July 2026, with data centers; older clients cannot do without them.
    datacenters: bool = False


@dataclass
class Cloud:
    """Everything one token can see. Lives in one event loop; a change is never split by an await."""

    backend: Backend
    settings: Settings
    delays: Delays
    faults: Faults
    storage: Path
    system_file: Path | None
    engine: Engine = field(init=False)
    servers: dict[int, Server] = field(default_factory=dict)
    power_control: dict[int, ServerPower] = field(default_factory=dict)
    images: dict[int, Image] = field(default_factory=dict)
    ssh_keys: dict[int, SshKey] = field(default_factory=dict)
    primary_ips: dict[int, PrimaryIp] = field(default_factory=dict)
    metadata_only: dict[str, dict[int, MetadataOnly]] = field(default_factory=lambda: defaultdict(dict))
    load_balancers: dict[int, LoadBalancer] = field(default_factory=dict)
    #: Machine numbers of dedicated servers, and their power control.
    occupied: dict[int, PowerControl] = field(default_factory=dict)
    _ids: dict[str, Iterator[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(self.delays, self.faults)
        for system in resources.SYSTEM_IMAGES.values():
            self.images[system.id] = Image(
                id=system.id,
                type="system",
                name=system.name,
                description=system.description,
                architecture=system.architecture,
                disk_size=float(resources.SYSTEM_DISK_GB),
                os_flavor=system.flavor,
                os_version=system.version,
                created=system.released,
                file=self.system_file,
            )

    async def close(self) -> None:
        """Stop all actions and remove all machines."""
        await self.engine.close()
        await asyncio.gather(
            *(power_control.destroy() for power_control in self.power_control.values()), return_exceptions=True
        )

    def new_id(self, kind: str) -> int:
        """The next id of this kind; images continue above those of the catalogue."""
        first = {
            "server": 60_000_001,
            "image": 400_000_001,
            "ssh_key": 20_000_001,
            "primary_ip": 80_000_001,
            "load_balancer": 5_000_001,
        }
        return next(self._ids.setdefault(kind, itertools.count(first.get(kind, 1_000_001))))

    def start(
        self, item: Server | LoadBalancer, command: str, job: Job, after: resources.Action | None = None
    ) -> resources.Action:
        """Start an action of what no other one holds, except for the one ``after`` which it comes."""
        if after is None:
            check_unlocked(item)
        kind = "server" if isinstance(item, Server) else "load_balancer"
        return self.engine.start(command, item.name, [(kind, item.id)], job, item, after)

    def server(self, identifier: int) -> Server:
        return found("server", self.servers, identifier)

    def server_by_address(self, address: str) -> Server | None:
        for server in self.servers.values():
            if self.backend.address(server.index) == address:
                return server
        return None

    def power_control_by_address(self, address: str) -> PowerControl | None:
        """The dedicated server whose machine has this IPv4 address."""
        return next((item for index, item in self.occupied.items() if self.backend.address(index) == address), None)

    def targeted(self, target: Target) -> list[Server]:
        """The servers that a target of a load balancer means now."""
        if target.type == "server":
            return [server for server in self.servers.values() if server.id == target.value]
        if target.type == "label_selector":
            matches = schemas.parse_selector(str(target.value))
            return [server for server in self.servers.values() if matches(server.labels)]
        return []

    def balancers_of(self, server: Server) -> list[int]:
        return [
            item.id
            for item in self.load_balancers.values()
            if any(server in self.targeted(target) for target in item.targets)
        ]

    def owners(self) -> list[Server | LoadBalancer]:
        """Everything that can have a place in a private network."""
        return [*self.servers.values(), *self.load_balancers.values()]

    def free_index(self) -> int:
        """The lowest machine number that is not in use, nor kept for a primary IP."""
        used = {server.index for server in self.servers.values()} | self.occupied.keys()
        used |= {item.index for item in self.primary_ips.values() if item.type == "ipv4"}
        return next(index for index in itertools.count(1) if index not in used)

    def server_type(self, wanted: int | str) -> ServerType:
        return by_id_or_name(resources.SERVER_TYPES, wanted, "server_type", "server type")

    def location(self, wanted: int | str) -> Location:
        return by_id_or_name(resources.LOCATIONS, wanted, "location", "location")

    def image(self, wanted: int | str, architecture: str) -> Image:
        """An image by id, or a system image by name for this architecture."""
        identifier = as_id(wanted)
        for image in self.images.values():
            if image.id == identifier or (image.name == wanted and image.architecture == architecture):
                return image
        raise invalid_input({"image": [f"image '{wanted}' not found for architecture {architecture}"]})

    def ssh_key(self, wanted: int | str) -> SshKey:
        return by_id_or_name(self.ssh_keys, wanted, "ssh_keys", "SSH key")

    def metadata_only_reference(self, kind: str, identifier: int, field_name: str) -> MetadataOnly:
        """A resource that a request refers to by id."""
        item = self.metadata_only[kind].get(identifier)
        if item is None:
            raise invalid_input({field_name: [f"{kind.replace('_', ' ')} '{identifier}' not found"]})
        return item


def as_id(wanted: int | str) -> int | None:
    """The id in ``wanted``, a number or a text of digits; None when it is none."""
    if isinstance(wanted, int):
        return wanted
    return whole_number(wanted)


def by_id_or_name(items: Mapping[int, N], wanted: int | str, field_name: str, kind: str) -> N:
    """The item with this id or name, or a refusal naming the field."""
    identifier = as_id(wanted)
    if identifier is not None and identifier in items:
        return items[identifier]
    for item in items.values():
        if item.name == wanted:
            return item
    raise invalid_input({field_name: [f"{kind} '{wanted}' not found"]})


def found(kind: str, items: Mapping[int, T], identifier: int) -> T:
    """The item of this id, or 404."""
    item = items.get(identifier)
    if item is None:
        raise not_found(kind, identifier)
    return item


def refuse_if(condition: bool, error: ApiError) -> None:
    if condition:
        raise error


def check_name(items: Mapping[int, Any], name: str, refusal: str, itself: object = None) -> None:
    taken = any(item.name == name and item is not itself for item in items.values())
    refuse_if(taken, not_unique("name", refusal))


def update_named(items: Mapping[int, Any], item: Any, body: NamedUpdate | ServerUpdate, refusal: str) -> None:
    """Rename or relabel; a map of labels replaces the old one as a whole."""
    if body.name is not None:
        check_name(items, body.name, refusal, item)
        item.name = body.name
    if body.labels is not None:
        item.labels = dict(body.labels)


def check_unlocked(item: Server | LoadBalancer) -> None:
    """Refuse while an action holds it."""
    refuse_if(bool(item.locks), locked("server" if isinstance(item, Server) else "load balancer"))
