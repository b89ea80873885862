# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/ip, /subnet, /rdns and /failover: the addresses of the account. Nothing is routed by them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from lab.numbers import whole_number

from .account import Account
from .forms import Form, account, answer, form
from .model import Dedicated, TrafficWarnings
from .robot_errors import RobotError, invalid_input, not_found
from .robot_views import identity

routes = web.RouteTableDef()
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_POINTER = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_PLACE = {"gateway": "172.31.1.1", "mask": 32, "broadcast": None}


@routes.get("/")
async def root(_request: web.Request) -> web.Response:
    """An empty answer: clients use it to check their credentials."""
    return answer({})


@routes.get("/ip")
async def list_ips(request: web.Request) -> web.Response:
    """The main addresses."""
    return _list("ip", [_ip(server) for server in _asked_for(request)])


@routes.get("/ip/{ip}")
async def get_ip(request: web.Request) -> web.Response:
    """One address, with its place in the network."""
    return answer({"ip": _ip(_owner(request)) | _PLACE})


@routes.post("/ip/{ip}")
async def warn_ip(request: web.Request) -> web.Response:
    """Change the traffic warnings of an address."""
    server = _owner(request)
    _warn(server, server.ipv4, await form(request))
    return answer({"ip": _ip(server) | _PLACE})


@routes.get("/ip/{ip}/mac")
async def get_mac(request: web.Request) -> web.Response:
    """Main addresses have no MAC address of their own."""
    _owner(request)
    raise RobotError(404, "MAC_NOT_FOUND", "There is no separate MAC address set")


@routes.put("/ip/{ip}/mac")
@routes.delete("/ip/{ip}/mac")
async def change_mac(request: web.Request) -> web.Response:
    """Main addresses can have no MAC address of their own."""
    _owner(request)
    raise RobotError(404, "MAC_NOT_AVAILABLE", "For this IP address it is not possible to set a separate MAC address")


@routes.get("/subnet")
async def list_subnets(request: web.Request) -> web.Response:
    """The IPv6 networks, and the failover addresses as networks of one."""
    return _list("subnet", [net for server in _asked_for(request) for net in _subnets(server)])


@routes.get("/subnet/{ip}")
async def get_subnet(request: web.Request) -> web.Response:
    """One network."""
    return answer({"subnet": _subnet(request)[1]})


@routes.post("/subnet/{ip}")
async def warn_subnet(request: web.Request) -> web.Response:
    """Change the traffic warnings of a network."""
    server, net = _subnet(request)
    _warn(server, net["ip"], await form(request))
    return answer({"subnet": _subnet(request)[1]})


@routes.get("/rdns")
async def list_pointers(request: web.Request) -> web.Response:
    """All names that were given to addresses."""
    return _list("rdns", [_rdns(ip, ptr) for server in _asked_for(request) for ip, ptr in server.pointers.items()])


@routes.get("/rdns/{ip}")
async def get_pointer(request: web.Request) -> web.Response:
    """The name of one address."""
    server, ip = _named_address(request)
    return answer({"rdns": _rdns(ip, _pointer(server, ip))})


@routes.put("/rdns/{ip}")
async def create_pointer(request: web.Request) -> web.Response:
    """Give a name to an address that has none."""
    server, ip = _named_address(request)
    if ip in server.pointers:
        raise RobotError(409, "RDNS_ALREADY_EXISTS", "There is already an existing RDNS entry")
    return await _name(request, server, ip)


@routes.post("/rdns/{ip}")
async def set_pointer(request: web.Request) -> web.Response:
    """Give a name to an address."""
    return await _name(request, *_named_address(request))


@routes.delete("/rdns/{ip}")
async def delete_pointer(request: web.Request) -> web.Response:
    """Take the name away."""
    server, ip = _named_address(request)
    _pointer(server, ip)
    del server.pointers[ip]
    return web.Response()


@routes.get("/failover")
async def list_failovers(request: web.Request) -> web.Response:
    """The failover addresses."""
    owner = account(request)
    return _list("failover", [_failover(owner, item, ip) for item in _asked_for(request) for ip in item.routed])


@routes.get("/failover/{ip}")
async def get_failover(request: web.Request) -> web.Response:
    """One failover address."""
    return answer({"failover": _failover(account(request), *_routed(request))})


@routes.post("/failover/{ip}")
async def route_failover(request: web.Request) -> web.Response:
    """Route a failover address to another server."""
    server, ip = _routed(request)
    fields = await form(request)
    fields.require("active_server_ip")
    to = account(request).named(fields.text("active_server_ip"))
    if to is None:
        raise RobotError(404, "FAILOVER_NEW_SERVER_NOT_FOUND", "The new server was not found")
    _lead(server, ip, to.number)
    return answer({"failover": _failover(account(request), server, ip)})


@routes.delete("/failover/{ip}")
async def unroute_failover(request: web.Request) -> web.Response:
    """Route a failover address to no server."""
    server, ip = _routed(request)
    _lead(server, ip, None)
    return answer({"failover": _failover(account(request), server, ip)})


def _list(name: str, items: list[dict[str, Any]]) -> web.Response:
    if not items:
        raise not_found(f"No {name} entries found")
    return answer([{name: item} for item in items])


def _asked_for(request: web.Request) -> list[Dedicated]:
    """All servers, or the one of ``server_ip``."""
    wanted = request.query.get("server_ip")
    return [server for server in account(request).ordered() if wanted in (None, server.ipv4)]


def _owner(request: web.Request) -> Dedicated:
    for server in account(request).ordered():
        if request.match_info["ip"] == server.ipv4:
            return server
    raise RobotError(404, "IP_NOT_FOUND", f"The IP address {request.match_info['ip']} was not found")


def _ip(server: Dedicated) -> dict[str, Any]:
    head = {"ip": server.ipv4, "server_ip": server.ipv4, "server_number": server.number, "locked": False}
    return head | {"separate_mac": None} | _warnings(server, server.ipv4)


def _warnings(server: Dedicated, ip: str) -> dict[str, Any]:
    found = server.traffic.get(ip, TrafficWarnings())
    numbers = {"traffic_hourly": found.hourly, "traffic_daily": found.daily, "traffic_monthly": found.monthly}
    return {"traffic_warnings": found.on} | numbers


def _warn(server: Dedicated, ip: str, fields: Form) -> None:
    known = server.traffic.get(ip, TrafficWarnings())
    numbers: dict[str, int] = {}
    for name in ("hourly", "daily", "monthly"):
        number = whole_number(fields.text(f"traffic_{name}", str(getattr(known, name))))
        if number is None:
            raise invalid_input(invalid=[f"traffic_{name}"])
        numbers[name] = number
    server.traffic[ip] = TrafficWarnings(fields.flag("traffic_warnings", known.on), **numbers)


def _subnets(server: Dedicated) -> Iterator[dict[str, Any]]:
    rows = [(server.ipv6_net, 64, "fe80::1", False)] + [(ip, 32, server.ipv4, True) for ip in server.routed]
    for ip, mask, gateway, failover in rows:
        place = {"ip": ip, "mask": mask, "gateway": gateway, "server_ip": server.ipv4, "server_number": server.number}
        yield place | {"failover": failover, "locked": False} | _warnings(server, ip)


def _subnet(request: web.Request) -> tuple[Dedicated, dict[str, Any]]:
    for server in account(request).ordered():
        for net in _subnets(server):
            if net["ip"] == request.match_info["ip"]:
                return server, net
    raise RobotError(404, "SUBNET_NOT_FOUND", f"The subnet {request.match_info['ip']} was not found")


def _named_address(request: web.Request) -> tuple[Dedicated, str]:
    """The server that an address belongs to, and the address in its usual form."""
    text = request.match_info["ip"]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        address = None
    for server in account(request).ordered():
        known = {server.ipv4, *server.routed}
        if address is not None and (str(address) in known or address in ipaddress.ip_network(f"{server.ipv6_net}/64")):
            return server, str(address)
    raise RobotError(404, "IP_NOT_FOUND", f"The IP address {text} was not found")


def _pointer(server: Dedicated, ip: str) -> str:
    if ip not in server.pointers:
        raise RobotError(404, "RDNS_NOT_FOUND", f"The IP address {ip} has no reverse DNS entry yet")
    return server.pointers[ip]


def _rdns(ip: str, ptr: str) -> dict[str, str]:
    return {"ip": ip, "ptr": ptr}


async def _name(request: web.Request, server: Dedicated, ip: str) -> web.Response:
    fields = await form(request)
    fields.require("ptr")
    ptr = fields.text("ptr")
    if not _POINTER.fullmatch(ptr):
        raise invalid_input(invalid=["ptr"])
    created = ip not in server.pointers
    server.pointers[ip] = ptr
    return answer({"rdns": _rdns(ip, ptr)}, status=201 if created else 200)


def _routed(request: web.Request) -> tuple[Dedicated, str]:
    ip = request.match_info["ip"]
    for server in account(request).ordered():
        if ip in server.routed:
            return server, ip
    raise not_found(f"Failover with id {ip} not found")


def _failover(owner: Account, server: Dedicated, ip: str) -> dict[str, Any]:
    to = server.routed[ip]
    active = owner.servers[to].ipv4 if to is not None else None
    return {"ip": ip, "netmask": "255.255.255.255", **identity(server), "active_server_ip": active}


def _lead(server: Dedicated, ip: str, to: int | None) -> None:
    if server.routed[ip] == to:
        raise RobotError(409, "FAILOVER_ALREADY_ROUTED", "The failover is already routed there")
    server.routed[ip] = to
