# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 and IPv6 of an interface (off, static or automatic), routes and routing rules.

A route or rule is in the profile of the interface it belongs to.
"""

from __future__ import annotations

import ipaddress
import re

from ..._common.names import is_host_name
from ..image_error import ImageError
from .document import Fields
from .profile import UP, Address, Interface, Network, Stack, address, host_address, interface_name, network

FOREVER = "2147483647"  # seconds; a live image has nothing better to do than to wait for its network
_CLIENT_ID = re.compile(r"[A-Za-z0-9:._@+-]{1,255}\Z")
_DUID = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){2,129}\Z")
_LOOPBACK = {4: (ipaddress.ip_address("127.0.0.1"), 8), 6: (ipaddress.ip_address("::1"), 128)}
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")


def loopback_stack(fields: Fields | None, version: int) -> Stack:
    """The stack of the loopback interface: the address that it has by itself, and what the section adds."""
    own, length = _LOOPBACK[version]
    found = Stack(version, given=True, enabled=True)
    if fields is not None:
        if fields.flag("enabled") is False:
            raise fields.wrong("enabled", "has no meaning for type loopback")
        found.addresses = _addresses(fields, version, automatic=False, loopback=True)
        fields.ignore("allow-extra-address")
        fields.done()
    more = tuple(one for one in found.addresses if one[0] != own)
    found.addresses = ((own, length), *more)
    found.settings["method"] = "manual"
    _write_addresses(found)
    return found


def stack(fields: Fields | None, version: int) -> Stack:
    """A stack by its section; without one the stack is off."""
    found = Stack(version)
    if fields is None:
        found.settings.update({"method": "disabled", "dhcp-timeout": FOREVER})
        return found
    found.given = True
    enabled, dhcp, autoconf = fields.flag("enabled"), bool(fields.flag("dhcp")), False
    if version == 6:
        autoconf = bool(fields.flag("autoconf"))
    found.automatic = dhcp or autoconf
    found.addresses = _addresses(fields, version, found.automatic)
    if enabled is None and (found.automatic or found.addresses):
        raise fields.missing("enabled", "say whether this is to be used")
    found.enabled = bool(enabled)
    if not found.enabled and (found.automatic or found.addresses):
        raise ImageError(f"{fields.at('enabled')} is false, yet addresses, dhcp or autoconf are given")
    if autoconf and not dhcp:
        raise fields.wrong("autoconf", "needs dhcp: true as well, which only asks when the router says so")
    found.settings["method"] = _method(found, autoconf)
    _write_addresses(found)
    own_dns = _automatic(fields, found)
    found.own_dns = found.enabled and (own_dns or (bool(found.addresses) and not found.automatic))
    _device(fields, found)
    fields.refuse("mptcp-flags", "give address-flags in the section mptcp of the interface")
    fields.refuse("forwarding", "set it with a sysctl in the installed system")
    fields.ignore("allow-extra-address")
    fields.done()
    return found


def _write_addresses(found: Stack) -> None:
    for at, (one, prefix) in enumerate(found.addresses):
        found.settings[f"address{at}"] = f"{one}/{prefix}"


def _method(found: Stack, autoconf: bool) -> str:
    if not found.enabled:
        return "disabled"
    if found.automatic:
        return "auto" if found.version == 4 or autoconf else "dhcp"
    if found.addresses:
        return "manual"
    return "disabled" if found.version == 4 else "link-local"


def _addresses(
    fields: Fields, version: int, automatic: bool, loopback: bool = False
) -> tuple[tuple[Address, int], ...]:
    """The static ones; link-local ones come by themselves, those with a lifetime came from the network."""
    found: list[tuple[Address, int]] = []
    for one in fields.mappings("address"):
        read = one.needed("ip"), one.at("ip"), version
        given = address(*read)
        if not (loopback and given.is_loopback):
            given = host_address(*read)
        prefix = one.needed_number("prefix-length", 0, given.max_prefixlen)
        lifetimes = [one.text("valid-life-time"), one.text("preferred-life-time")]
        one.refuse("mptcp-flags", "give address-flags in the section mptcp of the interface")
        one.ignore("valid-left", "preferred-left")
        one.done()
        if automatic and any(life not in (None, "forever") for life in lifetimes):
            continue
        if given in _LINK_LOCAL:
            continue
        if any(other == given for other, dummy in found):
            raise ImageError(f"{one.at('ip')}: {given} is given twice")
        found.append((given, prefix))
    return tuple(found)


def _automatic(fields: Fields, found: Stack) -> bool:
    """What only holds for a network that gives addresses; whether its name servers are not wanted."""
    given = {
        "ignore-auto-dns": fields.flag_text("auto-dns", "false", "true"),
        "never-default": fields.flag_text("auto-gateway", "false", "true"),
        "ignore-auto-routes": fields.flag_text("auto-routes", "false", "true"),
        "dhcp-send-hostname": fields.flag_text("dhcp-send-hostname"),
        "route-metric": fields.number_text("auto-route-metric", 0, 2**32 - 1),
    }
    table = fields.number("auto-route-table-id", 0, 2**32 - 1)
    name = fields.text("dhcp-custom-hostname")
    if name and not is_host_name(name):
        raise fields.wrong("dhcp-custom-hostname", "is no host name")
    identity = _client_id(fields) if found.version == 4 else _duid(fields)
    if not (found.enabled and found.automatic):
        return False
    found.settings.update(given)
    if table:
        found.settings["route-table"] = str(table)
    if name:
        found.settings["dhcp-fqdn" if found.version == 4 and "." in name else "dhcp-hostname"] = name
    found.settings["dhcp-timeout"] = FOREVER
    found.settings["dhcp-client-id" if found.version == 4 else "dhcp-duid"] = identity
    if found.version == 6:
        found.settings.update({"dhcp-iaid": "mac", "ra-timeout": FOREVER})
    return given["ignore-auto-dns"] == "true"


def _client_id(fields: Fields) -> str:
    text = fields.text("dhcp-client-id") or "ll"
    if not _CLIENT_ID.match(text):
        raise fields.wrong("dhcp-client-id", "is not ll, iaid+duid, hexadecimal with colons or a plain word")
    return {"ll": "mac", "iaid+duid": "duid"}.get(text, text)


def _duid(fields: Fields) -> str:
    text = fields.text("dhcp-duid") or "ll"
    if text not in ("ll", "llt", "uuid") and not _DUID.match(text):
        raise fields.wrong("dhcp-duid", "is not ll, llt, uuid or hexadecimal with colons")
    return "stable-uuid" if text == "uuid" else text


def _device(fields: Fields, found: Stack) -> None:
    """How an interface makes its own IPv6 addresses."""
    if found.version == 4:
        return
    mode = fields.choice("addr-gen-mode", ("eui64", "stable-privacy")) or "eui64"
    token = fields.text("token")
    if found.enabled:
        found.settings["addr-gen-mode"] = mode
    if not token:
        return
    given = address(token, fields.at("token"), 6)
    if int(given) >> 64:
        raise fields.wrong("token", "has bits in its first half; give the second one, such as ::1")
    if not int(given):
        return
    if mode != "eui64" or not (found.enabled and found.automatic):
        raise fields.wrong("token", "needs addr-gen-mode eui64 and autoconf")
    found.settings["token"] = str(given)


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
        words.append(f"from {source or ('0.0.0.0/0' if version == 4 else '::/0')}")
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
        raise fields.missing("fwmark", "fwmask needs it")
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
