# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a project, and what can be ordered: server types, locations, images (data)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

_EU = ("fsn1", "nbg1", "hel1")
_PLACES = {"EU": _EU, "US": ("ash", "hil")}
_TRAFFIC_EU = 20 * 10**12
_TRAFFIC_ELSEWHERE = 10**12
_HOURS_PER_MONTH = 624
VAT = 1.19
#: A type's GB of disk are 1024 million bytes, as lsblk shows it on the real platform.
DISK_GB_BYTES = 1024 * 10**6
SYSTEM_DISK_GB = 5


@dataclass(frozen=True)
class Location:
    """A place where servers are, as the API lists it."""

    id: int
    name: str
    description: str
    country: str
    city: str
    latitude: float
    longitude: float
    network_zone: str


LOCATIONS: dict[int, Location] = {
    location.id: location
    for location in (
        Location(1, "fsn1", "Falkenstein DC Park 1", "DE", "Falkenstein", 50.47612, 12.370071, "eu-central"),
        Location(2, "nbg1", "Nuremberg DC Park 1", "DE", "Nuremberg", 49.452102, 11.076665, "eu-central"),
        Location(3, "hel1", "Helsinki DC Park 1", "FI", "Helsinki", 60.169855, 24.938379, "eu-central"),
        Location(4, "ash", "Ashburn, VA", "US", "Ashburn, VA", 39.045821, -77.487073, "us-east"),
        Location(5, "hil", "Hillsboro, OR", "US", "Hillsboro, OR", 45.54222, -122.951924, "us-west"),
        Location(6, "sin", "Singapore", "SG", "Singapore", 1.283333, 103.833333, "ap-southeast"),
    )
}


class Priced:
    """What has a net price a month, in EUR."""

    monthly: float

    def hourly(self) -> float:
        """The price of one hour; a month is never billed with more hours than this counts."""
        return self.monthly / _HOURS_PER_MONTH

    @staticmethod
    def included_traffic(location: str) -> int:
        """Bytes a month that cost nothing at this location."""
        return _TRAFFIC_EU if location in _EU else _TRAFFIC_ELSEWHERE


@dataclass(frozen=True)
class ServerType(Priced):
    """A size of server."""

    id: int
    name: str
    cores: int
    memory: int
    disk: int
    monthly: float
    category: str
    cpu_type: str
    architecture: str
    locations: tuple[str, ...]


def _server_types(rows: str) -> dict[int, ServerType]:
    """Rows of: id, name, cores, GB of memory, GB of disk, net EUR a month, category, CPU, architecture, places."""
    types = {}
    for row in rows.strip().splitlines():
        identifier, name, cores, memory, disk, monthly, category, cpu, architecture, places = row.split()
        sizes = (int(cores), int(memory), int(disk))
        where = tuple(city for place in places.split(",") for city in _PLACES.get(place, (place,)))
        kind = ServerType(int(identifier), name, *sizes, float(monthly), category, cpu, architecture, where)
        types[kind.id] = kind
    return types


SERVER_TYPES = _server_types(
    """
    22 cpx11 2 2 40 4.49 regular_performance shared x86 US,sin
    23 cpx21 3 4 80 8.49 regular_performance shared x86 US,sin
    24 cpx31 4 8 160 15.49 regular_performance shared x86 US,sin
    25 cpx41 8 16 240 28.49 regular_performance shared x86 US,sin
    26 cpx51 16 32 360 60.49 regular_performance shared x86 US,sin
    45 cax11 2 4 40 3.29 cost_optimized shared arm EU
    93 cax21 4 8 80 5.99 cost_optimized shared arm EU
    94 cax31 8 16 160 11.99 cost_optimized shared arm EU
    95 cax41 16 32 320 23.99 cost_optimized shared arm EU
    96 ccx13 2 8 80 11.99 general_purpose dedicated x86 EU,US,sin
    97 ccx23 4 16 160 23.99 general_purpose dedicated x86 EU,US,sin
    98 ccx33 8 32 240 47.99 general_purpose dedicated x86 EU,US,sin
    99 ccx43 16 64 360 95.99 general_purpose dedicated x86 EU,US,sin
    100 ccx53 32 128 600 191.99 general_purpose dedicated x86 EU,US,sin
    101 ccx63 48 192 960 287.99 general_purpose dedicated x86 EU,US,sin
    109 cpx22 2 4 80 5.99 regular_performance shared x86 EU,sin
    110 cpx32 4 8 160 10.49 regular_performance shared x86 EU,sin
    111 cpx42 8 16 320 19.49 regular_performance shared x86 EU,sin
    112 cpx52 12 24 480 27.99 regular_performance shared x86 EU,sin
    113 cpx62 16 32 640 38.49 regular_performance shared x86 EU,sin
    114 cx23 2 4 40 2.99 cost_optimized shared x86 EU
    115 cx33 4 8 80 4.99 cost_optimized shared x86 EU
    116 cx43 8 16 160 7.99 cost_optimized shared x86 EU
    117 cx53 16 32 320 14.99 cost_optimized shared x86 EU
    """
)


@dataclass(frozen=True)
class LoadBalancerType(Priced):
    """A size of load balancer; sold everywhere."""

    id: int
    name: str
    max_connections: int
    max_services: int
    max_targets: int
    max_certificates: int
    monthly: float


LOAD_BALANCER_TYPES: dict[int, LoadBalancerType] = {
    item.id: item
    for item in (
        LoadBalancerType(1, "lb11", 10_000, 5, 25, 10, 5.39),
        LoadBalancerType(2, "lb21", 20_000, 15, 75, 25, 16.40),
        LoadBalancerType(3, "lb31", 40_000, 30, 150, 50, 32.90),
    )
}


@dataclass(frozen=True)
class SystemImage:
    """An image of the provider; in the lab the bytes of all of them are the lab's own Debian."""

    id: int
    name: str
    title: str
    flavor: str
    version: str
    architecture: str
    released: datetime

    @property
    def description(self) -> str:
        """The title; for other systems than debian-12 also that this Debian boots in their place."""
        return self.title if self.name == "debian-12" else f"Lab Debian (stands in for {self.title})"


def _images(rows: str) -> dict[int, SystemImage]:
    """Rows of: x86 id, arm id, name, release date, title."""
    images = {}
    for row in rows.strip().splitlines():
        x86, arm, name, released, title = row.split(maxsplit=4)
        flavor, version = name.split("-", 1) if "-stream-" not in name else ("centos", name.rsplit("-", 1)[1])
        for identifier, architecture in ((int(x86), "x86"), (int(arm), "arm")):
            date = datetime.fromisoformat(released).replace(tzinfo=UTC)
            images[identifier] = SystemImage(identifier, name, title, flavor, version, architecture, date)
    return dict(sorted(images.items()))


SYSTEM_IMAGES = _images(
    """
    67794396 103908130 ubuntu-22.04 2022-04-21 Ubuntu 22.04
    114690387 114690389 debian-12 2023-06-13 Debian 12
    161547269 161547270 ubuntu-24.04 2024-04-25 Ubuntu 24.04
    310557660 310557661 debian-13 2025-08-11 Debian 13
    215424061 215424062 alma-9 2024-12-02 AlmaLinux OS 9
    215424091 215424092 rocky-9 2024-12-02 Rocky Linux 9
    215424121 215424122 centos-stream-9 2024-12-02 CentOS Stream 9
    287456001 287456002 fedora-42 2025-04-22 Fedora 42
    """
)


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
    """One boot that happened; ``at`` in Unix seconds."""

    at: float
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
