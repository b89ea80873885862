# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/firewall: the firewalls of servers, and templates for them. They filter nothing."""

from __future__ import annotations

import itertools
from typing import Any

from aiohttp import web

from lab.numbers import whole_number

from .forms import Form, account, answer, form, server
from .model import Dedicated, Firewall, Rules, Template
from .robot_errors import RobotError, invalid_input

routes = web.RouteTableDef()
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
    return answer([{"firewall_template": _head(item)} for item in account(request).templates.values()])


@routes.post("/firewall/template")
async def create_template(request: web.Request) -> web.Response:
    """A new template."""
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
    """One template."""
    return answer({"firewall_template": _template_view(_template(request, request.match_info["template"]))})


@routes.post("/firewall/template/{template}")
async def update_template(request: web.Request) -> web.Response:
    """Change what is named of a template."""
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
    """The firewall of a server."""
    found = server(request)
    if request.query.get("port", "main") != "main":
        raise RobotError(404, "FIREWALL_PORT_NOT_FOUND", "The port was not found")
    return answer({"firewall": _view(found, account(request).now)})


@routes.post("/firewall/{server}")
async def set_firewall(request: web.Request) -> web.Response:
    """Give a server a whole new configuration, by a template or by what the request names."""
    found, fields = server(request), await form(request)
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
    """Remove all rules."""
    return _put(request, server(request), Firewall())


def _put(request: web.Request, found: Dedicated, wanted: Firewall) -> web.Response:
    owner = account(request)
    if owner.now < found.firewall.busy_until:
        raise RobotError(409, "FIREWALL_IN_PROCESS", "The firewall cannot be changed: a change is in process")
    wanted.busy_until = owner.now + owner.settings.process_seconds
    found.firewall = wanted
    return answer({"firewall": _view(found, owner.now)}, status=202)


def _view(found: Dedicated, now: float) -> dict[str, Any]:
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


def _head(item: Template) -> dict[str, Any]:
    flags = {"filter_ipv6": item.filter_ipv6, "whitelist_hos": item.whitelist_hos, "is_default": item.is_default}
    return {"id": item.id, "name": item.name} | flags


def _template_view(item: Template) -> dict[str, Any]:
    return _head(item) | {"rules": item.rules}


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
