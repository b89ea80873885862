# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of metadata only: /ip, /subnet, /rdns, /failover, /firewall, /vswitch. Nothing is routed or filtered."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from lab.api.schemas import whole_number

from . import robot_http
from .account import Account
from .model import Dedicated, Firewall, Rules, Template, TrafficWarnings, VSwitch
from .robot_http import Form, RobotError, account, answer, form, identity, invalid_input, not_found, server_not_found

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
    return _list("ip", [_ip(server) for server in _asked_for(request)])


@routes.get("/ip/{ip}")
async def get_ip(request: web.Request) -> web.Response:
    return answer({"ip": _ip(_owner(request)) | _PLACE})


@routes.post("/ip/{ip}")
async def warn_ip(request: web.Request) -> web.Response:
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
    return answer({"subnet": _subnet(request)[1]})


@routes.post("/subnet/{ip}")
async def warn_subnet(request: web.Request) -> web.Response:
    server, net = _subnet(request)
    _warn(server, net["ip"], await form(request))
    return answer({"subnet": _subnet(request)[1]})


@routes.get("/rdns")
async def list_pointers(request: web.Request) -> web.Response:
    """All names that were given to addresses."""
    return _list("rdns", [_rdns(ip, ptr) for server in _asked_for(request) for ip, ptr in server.pointers.items()])


@routes.get("/rdns/{ip}")
async def get_pointer(request: web.Request) -> web.Response:
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
    return await _name(request, *_named_address(request))


@routes.delete("/rdns/{ip}")
async def delete_pointer(request: web.Request) -> web.Response:
    server, ip = _named_address(request)
    _pointer(server, ip)
    del server.pointers[ip]
    return web.Response()


@routes.get("/failover")
async def list_failovers(request: web.Request) -> web.Response:
    owner = account(request)
    return _list("failover", [_failover(owner, item, ip) for item in _asked_for(request) for ip in item.routed])


@routes.get("/failover/{ip}")
async def get_failover(request: web.Request) -> web.Response:
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


_CHAINS = ("input", "output")
_FIELDS = ("ip_version", "name", "dst_ip", "src_ip", "dst_port", "src_port", "protocol", "tcp_flags", "action")
_ALLOWED = {
    "ip_version": ("ipv4", "ipv6"),
    "protocol": ("tcp", "udp", "gre", "icmp", "ipip", "ah", "esp"),
    "action": ("accept", "discard"),
}
_MOST_RULES = 10


@routes.get("/firewall/template")
async def list_templates(request: web.Request) -> web.Response:
    """All templates, without their rules."""
    return answer([{"firewall_template": _firewall_head(item)} for item in account(request).templates.values()])


@routes.post("/firewall/template")
async def create_template(request: web.Request) -> web.Response:
    owner, fields = account(request), await form(request)
    fields.require("name")
    number = next(free for free in itertools.count(1) if free not in owner.templates)
    owner.templates[number] = Template(number, "", False, True, False, {chain: [] for chain in _CHAINS})
    try:
        _change(request, owner.templates[number], fields)
    except RobotError:
        del owner.templates[number]
        raise
    return answer({"firewall_template": _template_view(owner.templates[number])}, status=201)


@routes.get("/firewall/template/{template}")
async def get_template(request: web.Request) -> web.Response:
    return answer({"firewall_template": _template_view(_template(request, request.match_info["template"]))})


@routes.post("/firewall/template/{template}")
async def update_template(request: web.Request) -> web.Response:
    item = _template(request, request.match_info["template"])
    _change(request, item, await form(request))
    return answer({"firewall_template": _template_view(item)})


@routes.delete("/firewall/template/{template}")
async def delete_template(request: web.Request) -> web.Response:
    """Remove a template; firewalls keep its rules."""
    del account(request).templates[_template(request, request.match_info["template"]).id]
    return web.Response()


@routes.get("/firewall/{server}")
async def get_firewall(request: web.Request) -> web.Response:
    found = robot_http.server(request)
    if request.query.get("port", "main") != "main":
        raise RobotError(404, "FIREWALL_PORT_NOT_FOUND", "The port was not found")
    return answer({"firewall": _firewall_view(found, account(request).now)})


@routes.post("/firewall/{server}")
async def set_firewall(request: web.Request) -> web.Response:
    """Give a server a whole new configuration, by a template or by what the request names."""
    found, fields = robot_http.server(request), await form(request)
    if fields.text("port", "main") != "main":
        raise RobotError(404, "FIREWALL_PORT_NOT_FOUND", "The port was not found")
    if fields.has("template_id"):
        item = _template(request, fields.text("template_id"))
        wanted = Firewall("active", item.filter_ipv6, item.whitelist_hos, item.rules)
    else:
        fields.require("status")
        if fields.text("status") not in ("active", "disabled"):
            raise invalid_input(invalid=["status"])
        known = found.firewall
        flags = (fields.flag("filter_ipv6", known.filter_ipv6), fields.flag("whitelist_hos", known.whitelist_hos))
        wanted = Firewall(fields.text("status"), *flags, _rules(fields))
    return _put(request, found, wanted)


@routes.delete("/firewall/{server}")
async def clear_firewall(request: web.Request) -> web.Response:
    return _put(request, robot_http.server(request), Firewall())


def _put(request: web.Request, found: Dedicated, wanted: Firewall) -> web.Response:
    owner = account(request)
    if owner.now < found.firewall.busy_until:
        raise RobotError(409, "FIREWALL_IN_PROCESS", "The firewall cannot be changed: a change is in process")
    wanted.busy_until = owner.now + owner.settings.process_seconds
    found.firewall = wanted
    return answer({"firewall": _firewall_view(found, owner.now)}, status=202)


def _firewall_view(found: Dedicated, now: float) -> dict[str, Any]:
    item = found.firewall
    return {
        "server_ip": found.ipv4,
        "server_number": found.number,
        "status": "in process" if now < item.busy_until else item.status,
        "filter_ipv6": item.filter_ipv6,
        "whitelist_hos": item.whitelist_hos,
        "port": "main",
        "rules": item.rules,
    }


def _firewall_head(item: Template) -> dict[str, Any]:
    flags = {"filter_ipv6": item.filter_ipv6, "whitelist_hos": item.whitelist_hos, "is_default": item.is_default}
    return {"id": item.id, "name": item.name} | flags


def _template_view(item: Template) -> dict[str, Any]:
    return _firewall_head(item) | {"rules": item.rules}


def _template(request: web.Request, text: str) -> Template:
    item = account(request).templates.get(whole_number(text) or 0)
    if item is None:
        raise RobotError(404, "FIREWALL_TEMPLATE_NOT_FOUND", f"Firewall template with id {text} not found")
    return item


def _change(request: web.Request, item: Template, fields: Form) -> None:
    """Nothing is changed when a field is wrong; there is one default template at most."""
    filters, hos = fields.flag("filter_ipv6", item.filter_ipv6), fields.flag("whitelist_hos", item.whitelist_hos)
    default, rules = fields.flag("is_default", item.is_default), _rules(fields) if fields.has("rules") else item.rules
    if default:
        for other in account(request).templates.values():
            other.is_default = False
    item.name = fields.text("name", item.name)
    item.filter_ipv6, item.whitelist_hos, item.is_default, item.rules = filters, hos, default, rules


def _rules(fields: Form) -> Rules:
    """The rules of a request; every field is shown, those that were not given as null."""
    rules: Rules = {}
    for chain in _CHAINS:
        rows = fields.rows("rules", chain)
        if len(rows) > _MOST_RULES:
            raise invalid_input(invalid=[f"rules[{chain}]"])
        for number, row in enumerate(rows):
            _check(f"rules[{chain}][{number}]", row)
        rules[chain] = [{name: row.get(name) or None for name in _FIELDS} for row in rows]
    return rules


def _check(place: str, row: dict[str, str]) -> None:
    if not row.get("action"):
        raise invalid_input(missing=[f"{place}[action]"])
    wrong = [name for name, value in row.items() if name not in _FIELDS or value not in _ALLOWED.get(name, (value,))]
    needs_version = [name for name in ("dst_ip", "src_ip", "protocol") if row.get(name) and not row.get("ip_version")]
    if wrong or needs_version:
        raise invalid_input(invalid=[f"{place}[{name}]" for name in wrong or ["ip_version"]])


_FIRST = 4321
_VLANS = range(4000, 4092)
_MOST_SERVERS = 100
_MOST_PER_SERVER = 5
_DATE = re.compile(r"(?:[0-9]{2}|[0-9]{4})-[0-9]{2}-[0-9]{2}")


@routes.get("/vswitch")
async def list_switches(request: web.Request) -> web.Response:
    """All switches, in short form; a list without wrappers, which may be empty."""
    return answer([_switch_head(item) for item in account(request).vswitches.values()])


@routes.post("/vswitch")
async def create_switch(request: web.Request) -> web.Response:
    owner, fields = account(request), await form(request)
    fields.require("name", "vlan")
    number = next(free for free in itertools.count(_FIRST) if free not in owner.vswitches)
    item = owner.vswitches[number] = VSwitch(number, fields.text("name"), _vlan(fields))
    return answer(_switch_view(owner, item), status=201)


@routes.get("/vswitch/{vswitch}")
async def get_switch(request: web.Request) -> web.Response:
    return answer(_switch_view(account(request), _switch(request)))


@routes.post("/vswitch/{vswitch}")
async def change_switch(request: web.Request) -> web.Response:
    item, fields = _switch(request), await form(request)
    fields.require("name", "vlan")
    vlan = _vlan(fields)
    _check_idle(request, item)
    for number in item.members:
        _check_vlan(account(request), item, vlan, number)
    item.name, item.vlan = fields.text("name"), vlan
    return web.Response(status=201)


@routes.delete("/vswitch/{vswitch}")
async def cancel_switch(request: web.Request) -> web.Response:
    """Cancel now, or for a day; the lab never executes the latter."""
    item, fields = _switch(request), await form(request)
    fields.require("cancellation_date")
    date = fields.text("cancellation_date")
    if date != "now" and not _DATE.fullmatch(date):
        raise invalid_input(invalid=["cancellation_date"])
    if item.cancelled:
        raise RobotError(409, "CONFLICT", "The vSwitch is already cancelled")
    item.cancelled = True
    if date == "now":
        del account(request).vswitches[item.id]
    return web.Response()


@routes.post("/vswitch/{vswitch}/server")
async def add_servers(request: web.Request) -> web.Response:
    """Add servers to the switch; all of them, or none."""
    owner, item = account(request), _switch(request)
    servers = [server for server in await _servers(request) if server.number not in item.members]
    _check_idle(request, item)
    for server in servers:
        _check_vlan(owner, item, item.vlan, server.number)
        if sum(server.number in other.members for other in owner.vswitches.values()) >= _MOST_PER_SERVER:
            raise RobotError(
                409, "VSWITCH_PER_SERVER_LIMIT_REACHED", f"Server {server.number} is in too many vSwitches"
            )
    if len(item.members) + len(servers) > _MOST_SERVERS:
        raise RobotError(409, "VSWITCH_SERVER_LIMIT_REACHED", "The maximum number of servers is reached")
    item.members |= {server.number: owner.now + owner.settings.process_seconds for server in servers}
    return web.Response(status=201)


@routes.delete("/vswitch/{vswitch}/server")
async def remove_servers(request: web.Request) -> web.Response:
    item, servers = _switch(request), await _servers(request)
    _check_idle(request, item)
    for server in servers:
        if server.number not in item.members:
            raise server_not_found(str(server.number))
    for server in servers:
        item.members.pop(server.number, None)
    return web.Response()


def _switch(request: web.Request) -> VSwitch:
    item = account(request).vswitches.get(whole_number(request.match_info["vswitch"]) or 0)
    if item is None:
        raise not_found("vSwitch not found")
    return item


async def _servers(request: web.Request) -> list[Dedicated]:
    """The servers of the form, by number, main address or IPv6 network."""
    owner, fields = account(request), await form(request)
    names = fields.many("server")
    if not names:
        raise invalid_input(missing=["server"])
    found = [(name, owner.named(name)) for name in names]
    unknown = [name for name, server in found if server is None]
    if unknown:
        raise server_not_found(", ".join(unknown))
    return [server for _name, server in found if server is not None]


def _vlan(fields: Form) -> int:
    vlan = whole_number(fields.text("vlan"))
    if vlan is None or vlan not in _VLANS:
        raise invalid_input(invalid=["vlan"])
    return vlan


def _check_idle(request: web.Request, item: VSwitch) -> None:
    if item.busy(account(request).now):
        raise RobotError(409, "VSWITCH_IN_PROCESS", "There is already a running update of this vSwitch")


def _check_vlan(owner: Account, item: VSwitch, vlan: int, number: int) -> None:
    for other in owner.vswitches.values():
        if other is not item and not other.cancelled and other.vlan == vlan and number in other.members:
            raise RobotError(409, "VSWITCH_VLAN_NOT_UNIQUE", f"Server {number} is in another vSwitch of VLAN {vlan}")


def _switch_head(item: VSwitch) -> dict[str, Any]:
    return {"id": item.id, "name": item.name, "vlan": item.vlan, "cancelled": item.cancelled}


def _switch_view(owner: Account, item: VSwitch) -> dict[str, Any]:
    members = [
        identity(owner.servers[number]) | {"status": "in process" if owner.now < until else "ready"}
        for number, until in item.members.items()
    ]
    return _switch_head(item) | {"server": members, "subnet": [], "cloud_network": []}
