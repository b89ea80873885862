# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Routes and routing rules, each in the profile of the interface it belongs to."""

from __future__ import annotations

from ..errors import ImageError
from .document import Fields
from .profile import UP, Interface, Network, host_address, interface_name, network

MAIN = 254
_FIRST_PRIORITY = 30000  # of rules that were given none, as nmstatectl counts
_KINDS = ("blackhole", "prohibit", "unreachable")
_ROUTE = ("destination", "next-hop-interface", "next-hop-address", "metric", "table-id", "weight", "cwnd", "source",
          "route-type", "vrf-name")  # fmt: skip
_RULE = ("ip-from", "ip-to", "family", "priority", "route-table", "fwmark", "fwmask", "iif", "action",
         "suppress-prefix-length")  # fmt: skip


def routes(fields: Fields, found: dict[str, Interface]) -> None:
    """The section ``routes``; ``running`` only reports what was."""
    fields.ignore("running")
    seen: set[tuple[str, ...]] = set()
    for one in fields.mappings("config"):
        if _present(one, _ROUTE):
            _route(one, found, seen)
    fields.done()


def _route(fields: Fields, found: dict[str, Interface], seen: set[tuple[str, ...]]) -> None:
    target = network(fields.needed("destination"), fields.at("destination"))
    version = target.version
    gateway = fields.text("next-hop-address")
    hop = str(host_address(gateway, fields.at("next-hop-address"), version)) if gateway else ""
    metric = fields.number("metric", -1, 2**32 - 1)
    table = fields.number("table-id", 0, 2**32 - 1) or MAIN
    options = [f"table={table}"]
    weight, window = fields.number("weight", 1, 256), fields.number("cwnd", 1, 2**31 - 1)
    source, kind = fields.text("source"), fields.choice("route-type", _KINDS)
    if kind and fields.raw("next-hop-interface") is None:  # it leads nowhere, so any profile may hold it
        owner = _home(fields, found, version, table, None)
    else:
        owner = _owner(fields, found, version)
    name = fields.text("vrf-name")
    if name:
        router = found.get(name)
        if router is None or router.table is None:
            raise fields.wrong("vrf-name", "is no VRF of this document")
        options = [f"table={router.table}"]
    fields.done()
    if weight is not None:
        if not (hop and version == 4):
            raise fields.wrong("weight", "is only for IPv4 routes with next-hop-address")
        options.append(f"weight={weight}")
    if window is not None:
        options += [f"cwnd={window}", "lock-cwnd=true"]
    if source:
        options.append(f"src={host_address(source, fields.at('source'), version)}")
    if kind:
        if hop:
            raise fields.wrong("route-type", "excludes next-hop-address")
        options.append(f"type={kind}")
    line = f"{target},{hop},{max(metric or 0, 0)}"
    identity = (owner.name, line, *options)
    if identity in seen:
        raise ImageError(f"{fields.path}: the route to {target} is given twice")
    seen.add(identity)
    stack = owner.stack(version)
    stack.settings[f"route{stack.routes}"] = line
    stack.settings[f"route{stack.routes}_options"] = ",".join(options)
    stack.routes += 1
    stack.tables.add(table)


def _present(fields: Fields, keys: tuple[str, ...]) -> bool:
    """Whether it is to be there; a live image begins without routes and rules, so what is to go is not there."""
    if (fields.choice("state", ("present", "absent", "ignore")) or "present") == "present":
        return True
    fields.ignore(*keys)
    fields.done()
    return False


def _owner(fields: Fields, found: dict[str, Interface], version: int) -> Interface:
    owner = found.get(fields.needed("next-hop-interface"))
    if owner is None or owner.state != UP:
        raise fields.wrong("next-hop-interface", "is no interface of this document that is up")
    if not owner.stack(version).enabled:
        raise fields.wrong("next-hop-interface", f"has no IPv{version}; enable it there")
    return owner


def rules(fields: Fields, found: dict[str, Interface]) -> None:
    """The section ``route-rules``."""
    entries = [one for one in fields.mappings("config") if _present(one, _RULE)]
    fields.done()
    taken = {one.number("priority", -1, 2**32 - 1) for one in entries}
    following = _FIRST_PRIORITY
    for one in entries:
        priority = one.number("priority", -1, 2**32 - 1)
        if priority is None or priority < 0:
            while following in taken:
                following += 1
            priority = following
            following += 1
        _rule(one, found, priority)


def _rule(fields: Fields, found: dict[str, Interface], priority: int) -> None:
    source, target = _side(fields, "ip-from"), _side(fields, "ip-to")
    version = _version(fields, source, target)
    table = fields.number("route-table", 0, 2**32 - 1) or MAIN
    mark, mask = fields.number("fwmark", 0, 2**32 - 1), fields.number("fwmask", 0, 2**32 - 1)
    incoming, action = fields.text("iif"), fields.choice("action", _KINDS)
    suppress = fields.number("suppress-prefix-length", 0, 32 if version == 4 else 128)
    fields.done()
    words = [f"priority {priority}"]
    words += [f"to {target}"] if target else []
    if source or not target:
        words.append("from %s" % (source or ("0.0.0.0/0" if version == 4 else "::/0")))
    if incoming:
        name = interface_name(incoming, fields.at("iif"))
        if name in found and found[name].nameless:
            raise fields.wrong("iif", "goes by its MAC or PCI address, its name is not known to the kernel")
        words.append(f"iif {name}")
    if suppress is not None:
        words.append(f"suppress_prefixlength {suppress}")
    if action:
        if suppress is not None:
            raise fields.wrong("suppress-prefix-length", "has no meaning with an action")
        words.append(f"type {action}")
    else:
        words.append(f"table {table}")
    if mask is not None and mark is None:
        raise ImageError(f"{fields.at('fwmark')} is missing; fwmask needs it")
    if mark is not None:
        words.append(f"fwmark 0x{mark:x}" + ("" if mask is None else f"/0x{mask:x}"))
    stack = _home(fields, found, version, table, incoming).stack(version)
    stack.settings[f"routing-rule{stack.rules + 1}"] = " ".join(words)
    stack.rules += 1


def _side(fields: Fields, key: str) -> Network | None:
    text = fields.text(key)
    return network(text, fields.at(key)) if text else None


def _version(fields: Fields, source: Network | None, target: Network | None) -> int:
    family = fields.choice("family", ("ipv4", "ipv6"))
    versions: set[int] = {one.version for one in (source, target) if one is not None}
    if family:
        versions.add(int(family[-1]))
    if len(versions) > 1:
        raise ImageError(f"{fields.path}: IPv4 and IPv6 in one rule")
    return versions.pop() if versions else 4


def _home(
    fields: Fields, found: dict[str, Interface], version: int, table: int, incoming: str | None
) -> Interface:  # fmt: skip
    """The profile it lives in: one with routes of its table, else where it applies, else any with that version."""
    able = [one for one in found.values() if one.state == UP and one.stack(version).enabled]
    able.sort(key=lambda one: one.kind == "loopback")
    for fits in (
        lambda one: table in one.stack(version).tables,
        lambda one: one.name == incoming,
        lambda one: bool(one.stack(version).addresses),
        lambda one: True,
    ):
        for one in able:
            if fits(one):
                return one
    raise ImageError(f"{fields.path}: no interface that is up has IPv{version}, so it has no place")
