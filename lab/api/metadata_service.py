# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata service: every machine reads about itself, recognised by the address it comes from."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import yaml
from aiohttp import web

from .cloud_project import Cloud
from .resources import Server
from .views import datacenter

Leaf = Callable[[Cloud, Server], str]

#: The provider's images allow root to log in with the keys of the server; so does this.
_VENDOR_DATA = "#cloud-config\ndisable_root: false\n"


def describe(cloud: Cloud, server: Server) -> dict[str, Any]:
    """The whole metadata document of a server."""
    return {
        "hostname": server.name,
        "instance-id": server.id,
        "availability-zone": _zone(server),
        "region": server.location.network_zone,
        "public-ipv4": _ipv4(cloud, server),
        "local-ipv4": server.private_net[0].ip if server.private_net else "",
        "public-keys": list(server.authorized_keys),
        "network-config": {
            "version": 1,
            "config": [
                {
                    "type": "physical",
                    "name": "eth0",
                    "mac_address": cloud.backend.mac(server.index),
                    "subnets": _subnets(server),
                }
            ],
        },
        "vendor_data": _VENDOR_DATA,
    }


def metadata_application(cloud: Cloud) -> web.Application:
    """The service as an application; plain HTTP, without a token."""
    leaves: dict[str, Leaf] = {
        "": lambda cloud, server: _yaml(describe(cloud, server)),
        "/hostname": lambda cloud, server: server.name,
        "/instance-id": lambda cloud, server: str(server.id),
        "/public-ipv4": _ipv4,
        "/local-ipv4": lambda cloud, server: server.private_net[0].ip if server.private_net else "",
        "/availability-zone": lambda cloud, server: _zone(server),
        "/region": lambda cloud, server: server.location.network_zone,
        "/public-keys": lambda cloud, server: _yaml(list(server.authorized_keys)),
        "/private-networks": _private_networks,
        "/vendor_data": lambda cloud, server: _VENDOR_DATA,
    }
    app = web.Application()

    def add(path: str, leaf: Leaf) -> None:
        async def get(request: web.Request) -> web.Response:
            return web.Response(text=leaf(cloud, _asking(cloud, request)))

        app.router.add_get(path, get)

    for path, leaf in leaves.items():
        add(f"/hetzner/v1/metadata{path}", leaf)
    add("/hetzner/v1/userdata", lambda cloud, server: server.user_data or "")
    return app


def _asking(cloud: Cloud, request: web.Request) -> Server:
    server = cloud.server_by_address(request.remote or "")
    if server is None:
        raise web.HTTPNotFound(text=f"no server has the address {request.remote}\n")
    return server


def _zone(server: Server) -> str:
    return str(datacenter(server.location)["name"])


def _subnets(server: Server) -> list[dict[str, Any]]:
    """How the public interface is to be configured."""
    found: list[dict[str, Any]] = [{"type": "dhcp", "ipv4": True}] if server.ipv4 or not server.ipv6 else []
    if server.ipv6:
        address = f"{ipaddress.IPv6Network(server.ipv6.ip)[1]}/64"
        found.append({"type": "static", "ipv6": True, "address": address, "gateway": "fe80::1", "dns_nameservers": []})
    return found


def _ipv4(cloud: Cloud, server: Server) -> str:
    return cloud.backend.address(server.index) if server.ipv4 is not None else ""


def _private_networks(cloud: Cloud, server: Server) -> str:
    networks = []
    for position, net in enumerate(server.private_net):
        network = cloud.metadata_only["network"][net.network]
        networks.append(
            {
                "ip": net.ip,
                "alias_ips": list(net.alias_ips),
                "interface_num": position + 1,
                "mac_address": net.mac,
                "network_id": net.network,
                "network_name": network.name,
                "network": network.content["ip_range"],
            }
        )
    return _yaml(networks)


def _yaml(value: object) -> str:
    # One key, one line: people read these with grep.
    return yaml.safe_dump(value, sort_keys=False, width=100_000)
