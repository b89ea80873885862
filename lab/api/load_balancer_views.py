# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load balancers as the API shows them, with the health of their targets at the moment."""

from __future__ import annotations

from typing import Any

from lab import chassis as hardware
from lab.api import views
from lab.api.cloud import Cloud
from lab.api.model import LoadBalancer, Server, Target


def view(cloud: Cloud, item: LoadBalancer) -> dict[str, Any]:
    """A load balancer as the API shows it, with the health of its targets now."""
    return {
        "id": item.id,
        "name": item.name,
        "public_net": {
            "enabled": item.public,
            "ipv4": {"id": item.ipv4.id, "ip": item.ipv4.ip, "blocked": False, "dns_ptr": None},
            "ipv6": {"id": item.ipv6.id, "ip": item.ipv6.ip, "blocked": False, "dns_ptr": None},
        },
        "private_net": [{"network": net.network, "ip": net.ip} for net in item.private_net],
        "location": views.location(item.location),
        "load_balancer_type": views.load_balancer_type(item.type),
        "protection": {"delete": item.protected},
        "labels": item.labels,
        "created": views.moment(item.created),
        "services": list(item.services.values()),
        "targets": [_target_view(cloud, item, target) for target in item.targets],
        "algorithm": {"type": item.algorithm},
        "outgoing_traffic": None,
        "ingoing_traffic": None,
        "included_traffic": item.type.included_traffic(item.location.name),
    }


def _target_view(cloud: Cloud, item: LoadBalancer, target: Target) -> dict[str, Any]:
    if target.type == "ip":
        chassis = cloud.chassis_by_address(str(target.value))
        health = _health(item, *_state(chassis))
        return {"type": "ip", "ip": {"ip": target.value}, "use_private_ip": False, "health_status": health}
    servers = [_server_view(cloud, item, server, target) for server in cloud.targeted(target)]
    if target.type == "server":
        return servers[0]
    return {
        "type": "label_selector",
        "label_selector": {"selector": target.value},
        "use_private_ip": target.use_private_ip,
        "health_status": [],
        "targets": servers,
    }


def _server_view(cloud: Cloud, item: LoadBalancer, server: Server, target: Target) -> dict[str, Any]:
    status, detail = _state(cloud.chassis.get(server.id))
    if not reaches(item, server, target.use_private_ip):
        status, detail = "unhealthy", "layer4_no_connection"
    return {
        "type": "server",
        "server": {"id": server.id},
        "use_private_ip": target.use_private_ip,
        "health_status": _health(item, status, detail),
    }


def reaches(item: LoadBalancer, server: Server, private: bool) -> bool:
    if not private:
        return server.ipv4 is not None
    return bool({net.network for net in item.private_net} & {net.network for net in server.private_net})


def _state(chassis: hardware.Chassis | None) -> tuple[str, str | None]:
    """What a health check finds: a system from its disk answers, a rescue refuses, a machine that is off is silent."""
    if chassis is None or not chassis.running:
        return "unhealthy", "layer4_timeout"
    return ("healthy", None) if chassis.boots_from_disk else ("unhealthy", "layer4_no_connection")


def _health(item: LoadBalancer, status: str, detail: str | None) -> list[dict[str, Any]]:
    return [
        {"listen_port": port, "status": status, "detail": detail, "http_status_code": None} for port in item.services
    ]
