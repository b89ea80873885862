# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a project as the API shows them (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from . import resources
from .actions import progress
from .resources import Action, Image, LoadBalancerType, Location, MetadataOnly, PrimaryIp, Server, ServerType, SshKey

_DATACENTERS = {"fsn1": (4, 14), "nbg1": (2, 3), "hel1": (3, 2), "ash": (5, 1), "hil": (6, 1), "sin": (7, 1)}


def moment(when: datetime | None) -> str | None:
    """A point in time in RFC 3339, to the second, as the API writes it."""
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")


def action(item: Action) -> dict[str, Any]:
    return {
        "id": item.id,
        "command": item.command,
        "status": item.status,
        "progress": progress(item),
        "started": moment(item.started),
        "finished": moment(item.finished),
        "resources": item.resources,
        "error": item.error,
    }


def location(item: Location) -> dict[str, Any]:
    return asdict(item)


def price(net: float) -> dict[str, str]:
    """A price with and without VAT, as strings."""
    return {"net": f"{net:.10f}", "gross": f"{net * resources.VAT:.16f}"}


def server_type(item: ServerType) -> dict[str, Any]:
    places = [place for place in resources.LOCATIONS.values() if place.name in item.locations]
    return {
        "id": item.id,
        "name": item.name,
        "description": item.name.upper(),
        "category": item.category,
        "cores": item.cores,
        "memory": float(item.memory),
        "disk": item.disk,
        "deprecated": False,
        "deprecation": None,
        # on the place of the prices since 2024; what is left here has said 0 since
        "included_traffic": 0,
        "prices": _prices(item, places),
        "storage_type": "local",
        "cpu_type": item.cpu_type,
        "architecture": item.architecture,
        "locations": [
            {"id": place.id, "name": place.name, "deprecation": None, "available": True, "recommended": True}
            for place in places
        ],
    }


def _prices(item: ServerType | LoadBalancerType, places: Iterable[Location]) -> list[dict[str, Any]]:
    return [
        {
            "location": place.name,
            "price_hourly": price(item.hourly()),
            "price_monthly": price(item.monthly),
            "included_traffic": item.included_traffic(place.name),
            "price_per_tb_traffic": price(1.0),
        }
        for place in places
    ]


def load_balancer_type(item: LoadBalancerType) -> dict[str, Any]:
    return {
        "id": item.id,
        "name": item.name,
        "description": item.name.upper(),
        "max_connections": item.max_connections,
        "max_services": item.max_services,
        "max_targets": item.max_targets,
        "max_assigned_certificates": item.max_certificates,
        "deprecated": None,
        "deprecation": None,
        "prices": _prices(item, resources.LOCATIONS.values()),
    }


def image(item: Image) -> dict[str, Any]:
    source = item.created_from
    return {
        "id": item.id,
        "type": item.type,
        "status": item.status,
        "name": item.name,
        "description": item.description,
        "image_size": item.image_size,
        "disk_size": item.disk_size,
        "created": moment(item.created),
        "created_from": None if source is None else {"id": source[0], "name": source[1]},
        "bound_to": item.bound_to,
        "os_flavor": item.os_flavor,
        "os_version": item.os_version,
        "rapid_deploy": item.type == "system",
        "protection": {"delete": item.delete_protected},
        "deprecated": None,
        "deprecation": None,
        "deleted": None,
        "labels": item.labels,
        "architecture": item.architecture,
    }


def ssh_key(item: SshKey) -> dict[str, Any]:
    return {
        "id": item.id,
        "name": item.name,
        "fingerprint": item.fingerprint,
        "public_key": item.public_key,
        "labels": item.labels,
        "created": moment(item.created),
    }


def dns_pointer(item: PrimaryIp) -> Any:
    """The reverse DNS of an address: one name for IPv4, a list for IPv6."""
    if item.type == "ipv6":
        return []
    return f"static.{'.'.join(reversed(item.ip.split('.')))}.clients.your-server.de"


def primary_ip(item: PrimaryIp) -> dict[str, Any]:
    pointer = dns_pointer(item)
    return {
        "id": item.id,
        "name": item.name,
        "type": item.type,
        "ip": item.ip,
        "assignee_id": item.assignee_id,
        "assignee_type": item.assignee_type,
        "auto_delete": item.auto_delete,
        "blocked": False,
        "created": moment(item.created),
        "dns_ptr": [{"ip": item.ip, "dns_ptr": pointer}] if item.type == "ipv4" else pointer,
        "labels": item.labels,
        "location": location(item.location),
        "protection": {"delete": False},
    }


def _address(item: PrimaryIp | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {"id": item.id, "ip": item.ip, "blocked": False, "dns_ptr": dns_pointer(item)}


def metadata_only(item: MetadataOnly) -> dict[str, Any]:
    head = {"id": item.id, "name": item.name, "created": moment(item.created), "labels": item.labels}
    return head | item.content


def datacenter(place: Location) -> dict[str, Any]:
    """The data center of a location, as the API showed it until July 2026."""
    identifier, number = _DATACENTERS[place.name]
    return {
        "id": identifier,
        "name": f"{place.name}-dc{number}",
        "description": f"{place.city} {identifier} virtual DC {number}",
        "location": location(place),
        "server_types": {"supported": [], "available": [], "available_for_migration": []},
    }


def server(
    item: Server, group: MetadataOnly | None, members: list[int], balancers: list[int], *, datacenters: bool
) -> dict[str, Any]:
    """A server; ``datacenters`` adds the field that was removed in July 2026."""
    view = {
        "id": item.id,
        "name": item.name,
        "status": item.status,
        "created": moment(item.created),
        "public_net": {
            "ipv4": _address(item.ipv4),
            "ipv6": _address(item.ipv6),
            "floating_ips": [],
            "firewalls": [{"id": identifier, "status": "applied"} for identifier in item.firewalls],
        },
        "private_net": [
            {"network": net.network, "ip": net.ip, "alias_ips": list(net.alias_ips), "mac_address": net.mac}
            for net in item.private_net
        ],
        "server_type": server_type(item.server_type),
        "location": location(item.location),
        "image": None if item.image is None else image(item.image),
        "iso": None,
        "rescue_enabled": item.armed_rescue() is not None,
        "locked": item.locked,
        "backup_window": item.backup_window,
        "outgoing_traffic": None,
        "ingoing_traffic": None,
        "included_traffic": item.server_type.included_traffic(item.location.name),
        "protection": {"delete": item.protected, "rebuild": item.protected},
        "labels": item.labels,
        "volumes": item.volumes,
        "load_balancers": balancers,
        "primary_disk_size": item.primary_disk_size,
        "placement_group": None if group is None else metadata_only(group) | {"servers": members},
    }
    if datacenters:
        view["datacenter"] = datacenter(item.location)
    return view


def no_traffic(start: datetime, end: datetime, step: int | None, kinds: Iterable[str]) -> dict[str, Any]:
    """Metrics of something that nothing goes through; without a step there are about 200 values."""
    seconds = max(0, int((end - start).total_seconds()))
    step = max(step or seconds // 200, seconds // 500, 1)
    values = [[int(start.timestamp()) + passed, "0"] for passed in range(0, seconds + 1, step)]
    names = [name for kind in kinds for name in ((f"{kind}.in", f"{kind}.out") if kind == "bandwidth" else (kind,))]
    series = {name: {"values": values} for name in names}
    return {"start": moment(start), "end": moment(end), "step": float(step), "time_series": series}
