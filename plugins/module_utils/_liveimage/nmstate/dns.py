# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""Name servers: NetworkManager keeps them in profiles, so one interface of each IP version is chosen for them."""

from __future__ import annotations

import re

from ..errors import ImageError
from .document import Fields, shown
from .profile import UP, Address, Interface, address, interface_name

PRIORITY = 40  # lower is asked first; the version that does not come first gets ten more
_MOST = 32
_DOMAIN = re.compile(r"(?=.{1,253}\Z)~?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?)+\Z|~?\.\Z")
_PLAIN = (
    "debug", "edns0", "inet6", "ip6-bytestring", "ip6-dotint", "no-aaaa", "no-check-names", "no-ip6-dotint",
    "no-reload", "no-tld-query", "rotate", "single-request", "single-request-reopen", "trust-ad", "use-vc",
)  # fmt: skip
_OPTION = re.compile(r"(ndots|timeout|attempts):[0-9]{1,3}\Z")


def dns(fields: Fields, found: dict[str, Interface]) -> None:
    """The section ``dns-resolver``; ``running`` only reports what was."""
    fields.ignore("running")
    config = fields.mapping("config")
    fields.done()
    if config is None:
        return
    servers, zones = _servers(config, found)
    search, options = config.texts("search"), config.texts("options")
    config.done()
    for at, one in enumerate(search):
        if not _DOMAIN.match(one):
            raise ImageError(f"{config.at('search')}[{at}]: {shown(one)} is no domain")
    for at, one in enumerate(options):
        if one not in _PLAIN and not _OPTION.match(one):
            raise ImageError(f"{config.at('options')}[{at}]: {shown(one)} is no option of a resolver")
    _check_order(config, servers)
    if max(len(servers), len(search), len(options)) > _MOST:
        raise ImageError(f"{config.path}: {_MOST} of a kind is the most")
    if servers:
        first = servers[0].version
        for version in sorted({one.version for one in servers}, key=lambda one: one != first):
            settings = _place(config, found, version, zones).stack(version).settings
            settings["dns"] = ";".join(str(one) for one in servers if one.version == version) + ";"
            settings["dns-priority"] = str(PRIORITY if version == first else PRIORITY + 10)
            if version == first:
                _more(settings, search, options)
    elif search or options:
        home = _candidate(found, 4) or _candidate(found, 6)
        if home is None:
            raise ImageError(f"{config.path}: no interface that is up has an address, so it has no place")
        settings = home.stack(4 if _fit(home, 4) else 6).settings
        settings["dns-priority"] = str(PRIORITY)
        _more(settings, search, options)


def _servers(config: Fields, found: dict[str, Interface]) -> tuple[list[Address], set[str]]:
    """Addresses without their zones, and the interfaces these name."""
    servers: list[Address] = []
    zones: set[str] = set()
    for at, text in enumerate(config.texts("server")):
        path = f"{config.at('server')}[{at}]"
        whole, percent, zone = text.partition("%")
        one = address(whole, path)
        if percent:
            interface_name(zone, path)
            if not one.is_link_local or one.version == 4 or zone not in found:
                raise ImageError(f"{path}: {text} is no link-local address on an interface of this document")
            zones.add(zone)
        elif one.is_link_local and one.version == 6:
            raise ImageError(f"{path}: {one} needs its interface, such as {one}%eth0")
        if one.is_unspecified or one.is_multicast:
            raise ImageError(f"{path}: {one} is no address of a host")
        if one in servers:
            raise ImageError(f"{path}: {one} is given twice")
        servers.append(one)
    if len(zones) > 1:
        raise ImageError(
            f"{config.at('server')}: link-local servers on more than one interface ({', '.join(sorted(zones))})"
        )
    return servers, zones


def _check_order(config: Fields, servers: list[Address]) -> None:
    runs = 1 + sum(one.version != other.version for one, other in zip(servers, servers[1:]))
    if runs > 2:
        raise ImageError(f"{config.at('server')}: list all servers of one IP version before those of the other")


def _place(config: Fields, found: dict[str, Interface], version: int, zones: set[str]) -> Interface:
    if version == 6 and zones:
        one = found[next(iter(zones))]
        if not _fit(one, 6):
            raise ImageError(f"{config.at('server')}: {one.name} has no IPv6")
        return one
    home = _candidate(found, version)
    if home is None:
        raise ImageError(
            f"{config.at('server')}: no interface that is up has static or automatic IPv{version}, so its servers "
            "have no place"
        )
    return home


def _candidate(found: dict[str, Interface], version: int) -> Interface | None:
    able = [one for one in found.values() if _fit(one, version)]
    for one in able:
        if one.stack(version).own_dns:
            return one
    return able[0] if able else None


def _fit(one: Interface, version: int) -> bool:
    stack = one.stack(version)
    return one.state == UP and one.kind != "loopback" and stack.enabled and (stack.automatic or bool(stack.addresses))


def _more(settings: dict[str, str], search: list[str], options: list[str]) -> None:
    if search:
        settings["dns-search"] = ";".join(search) + ";"
    if options:
        settings["dns-options"] = ";".join(options) + ";"
