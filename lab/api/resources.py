# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a project, as plain records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from .catalog import LoadBalancerType, Location, ServerType


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Action:
    """Something the platform does over time."""

    id: int
    command: str
    resources: list[dict[str, int | str]]
    started: datetime
    status: str = "running"
    finished: datetime | None = None
    error: dict[str, str] | None = None
    seconds: float = 0.0
    begun: float | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def concerns(self, kind: str, identifier: int | None = None) -> bool:
        """Whether the action is about an object of this kind (and this one, if given)."""
        return any(resource["type"] == kind and identifier in (None, resource["id"]) for resource in self.resources)


class Lockable(Protocol):
    """What a running action locks."""

    locks: set[int]


@dataclass
class SshKey:
    """A public key of the project."""

    id: int
    name: str
    public_key: str
    fingerprint: str
    labels: dict[str, str]
    created: datetime


@dataclass
class Image:
    """A system image, a snapshot or a backup. ``file`` holds the raw bytes; None means an empty disk."""

    id: int
    type: str
    name: str | None
    description: str
    architecture: str
    disk_size: float
    os_flavor: str
    os_version: str | None
    created: datetime
    status: str = "available"
    image_size: float | None = None
    created_from: tuple[int, str] | None = None
    bound_to: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    delete_protected: bool = False
    file: Path | None = None


@dataclass
class PrimaryIp:
    """A public address of a server or of a load balancer."""

    id: int
    name: str
    type: str
    ip: str
    location: Location
    created: datetime
    assignee_id: int | None
    assignee_type: str = "server"
    auto_delete: bool = True
    index: int = 0  # of an IPv4 address: the number of the machine that has it
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class MetadataOnly:
    """A resource that no machine notices: placement group, network, firewall or volume."""

    id: int
    name: str
    created: datetime
    labels: dict[str, str]
    content: dict[str, object]


@dataclass(frozen=True)
class PrivateNet:
    """A place in a network; load balancers have no MAC address."""

    network: int
    ip: str
    mac: str = ""
    alias_ips: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (self.ip, *self.alias_ips)


@dataclass(frozen=True)
class Target:
    """What a load balancer sends to: a server's id, a label selector or an address."""

    type: Literal["server", "label_selector", "ip"]
    value: int | str
    use_private_ip: bool = False


@dataclass
class LoadBalancer:
    """A load balancer, metadata only: it has an address, services and targets, and no traffic."""

    id: int
    name: str
    created: datetime
    type: LoadBalancerType
    location: Location
    labels: dict[str, str]
    algorithm: str
    public: bool
    ipv4: PrimaryIp
    ipv6: PrimaryIp
    services: dict[int, dict[str, Any]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    private_net: list[PrivateNet] = field(default_factory=list)
    protected: bool = False
    locks: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class ArmedRescue:
    """A rescue waiting for the next boot."""

    authorized_keys: tuple[str, ...]
    expires: datetime


@dataclass(frozen=True)
class Boot:
    """One boot that happened."""

    at: datetime
    source: str
    authorized_keys: tuple[str, ...] = ()


@dataclass
class Server:
    """A server as the API knows it; `ServerPower` handles the machine behind it."""

    id: int
    name: str
    index: int
    created: datetime
    server_type: ServerType
    location: Location
    image: Image | None
    labels: dict[str, str]
    authorized_keys: tuple[str, ...]
    user_data: str | None
    primary_disk_size: int
    status: str = "initializing"
    rescue: ArmedRescue | None = None
    locks: set[int] = field(default_factory=set)
    protected: bool = False
    backup_window: str | None = None
    ipv4: PrimaryIp | None = None
    ipv6: PrimaryIp | None = None
    private_net: list[PrivateNet] = field(default_factory=list)
    firewalls: list[int] = field(default_factory=list)
    volumes: list[int] = field(default_factory=list)
    placement_group: int | None = None
    boots: list[Boot] = field(default_factory=list)

    @property
    def locked(self) -> bool:
        return bool(self.locks)

    def armed_rescue(self) -> ArmedRescue | None:
        """The rescue the next boot would take; one that was not used in time is gone."""
        if self.rescue is not None and self.rescue.expires <= now():
            self.rescue = None
        return self.rescue
