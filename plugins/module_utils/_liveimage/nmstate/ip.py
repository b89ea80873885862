# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 and IPv6 of an interface: off, static or automatic."""

from __future__ import annotations

import ipaddress
import re

from ..._common.names import HOST_NAME
from ..errors import ImageError
from .document import Fields
from .profile import Address, Stack, address, host_address, true_false

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
        raise ImageError(f"{fields.at('enabled')} is missing; say whether this is to be used")
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
        prefix = one.number("prefix-length", 0, given.max_prefixlen)
        if prefix is None:
            raise ImageError(f"{one.at('prefix-length')} is missing")
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
        "ignore-auto-dns": fields.flag("auto-dns"),
        "never-default": fields.flag("auto-gateway"),
        "ignore-auto-routes": fields.flag("auto-routes"),
        "dhcp-send-hostname": fields.flag("dhcp-send-hostname"),
    }
    table = fields.number("auto-route-table-id", 0, 2**32 - 1)
    metric = fields.number("auto-route-metric", 0, 2**32 - 1)
    name = fields.text("dhcp-custom-hostname")
    if name and not (name.isascii() and HOST_NAME.fullmatch(name.lower())):
        raise fields.wrong("dhcp-custom-hostname", "is no host name")
    identity = _client_id(fields) if found.version == 4 else _duid(fields)
    if not (found.enabled and found.automatic):
        return False
    for key, value in given.items():
        if value is not None:
            found.settings[key] = true_false(value if key == "dhcp-send-hostname" else not value)
    if table:
        found.settings["route-table"] = str(table)
    if metric is not None:
        found.settings["route-metric"] = str(metric)
    if name:
        found.settings["dhcp-fqdn" if found.version == 4 and "." in name else "dhcp-hostname"] = name
    found.settings["dhcp-timeout"] = FOREVER
    found.settings["dhcp-client-id" if found.version == 4 else "dhcp-duid"] = identity
    if found.version == 6:
        found.settings.update({"dhcp-iaid": "mac", "ra-timeout": FOREVER})
    return given["ignore-auto-dns"] is False


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
