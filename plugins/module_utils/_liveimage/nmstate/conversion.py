# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A whole document: read, checked, connected, written.

NetworkManager keeps name servers in profiles, so one interface of each IP version is chosen for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Sequence, Tuple

from ..errors import ImageError
from .document import Fields, parse, shown
from .interface import interface
from .ip import routes, rules
from .profile import DOWN, MOST_INTERFACES, UP, Address, Interface, address, interface_name, keyfile_text
from .topology import connect, connection, ordered

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


_POLICY = "a policy asks the host what it has, and a live image is made before that; give the interfaces themselves"
_REFUSED = {
    "capture": _POLICY,
    "desired": _POLICY,
    "desiredState": _POLICY,
    "policy": _POLICY,
    "ovs-db": "NetworkManager has no keys for Open vSwitch as a whole; give other_config of its bridges and ports",
    "ovn": "NetworkManager has no keys for it",
}


@dataclass(frozen=True)
class Profiles:
    """Keyfiles by file name, controllers before ports; ``warnings`` name what has no effect."""

    files: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def keyfiles(document: Mapping[str, Any]) -> dict[str, str]:
    """The keyfiles of a document by their file names; equal documents give equal bytes."""
    return dict(convert(document).files)


def convert(document: Mapping[str, Any]) -> Profiles:
    """The same with what the user should know; ImageError names the path of the first thing that is wrong."""
    fields = Fields(document, "")
    for key, why in _REFUSED.items():
        fields.refuse(key, why)
    sections = {key: fields.mapping(key) for key in ("hostname", "routes", "route-rules", "dns-resolver")}
    found, others = _interfaces(fields.mappings("interfaces"))
    fields.done()
    warnings = [*_hostname(sections["hostname"]), *connect(found, others)]
    in_order = ordered(found)
    for key, place in (("routes", routes), ("route-rules", rules), ("dns-resolver", dns)):
        section = sections[key]
        if section is not None:
            place(section, found)
    return Profiles(_files(in_order), tuple(warnings))


def _interfaces(entries: list[Fields]) -> tuple[dict[str, Interface], dict[str, str]]:
    """Those that get a profile, and the names and states of the others."""
    if len(entries) > MOST_INTERFACES:
        raise ImageError(f"interfaces has {len(entries)} entries, {MOST_INTERFACES} is the most")
    every: dict[str, Interface] = {}
    for entry in entries:
        one = interface(entry)
        if one.key in every:
            raise ImageError(f"{entry.path}.name: {one.name} is given twice")
        every[one.key] = one
    found = {key: one for key, one in every.items() if one.state in (UP, DOWN)}
    return found, {key: one.state for key, one in every.items() if key not in found}


def _hostname(fields: Fields | None) -> list[str]:
    if fields is None:
        return []
    fields.ignore("running")
    given = fields.text("config")
    fields.done()
    if not given:
        return []
    return ["hostname.config has no effect, since keyfiles hold no host name; give the host's name as such"]


def _files(in_order: list[Interface]) -> dict[str, str]:
    files: dict[str, str] = {}
    for one in in_order:
        name = one.profile + ".nmconnection"
        if name in files:
            raise ImageError(f"{one.path}.profile-name: {one.profile} is given twice")
        one.section("connection").update(connection(one))
        if one.has_ip:
            one.settings["ipv4"], one.settings["ipv6"] = one.v4.settings, one.v6.settings
        files[name] = keyfile_text(one.settings)
    return files


CHOICES = ("auto", "builtin", "nmstatectl")
SECONDS = 60  # for one document; it needs a few milliseconds
COMMAND = ("nmstatectl", "gc", "/dev/stdin")
_DATED = re.compile(r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}")  # a line of its log
_FILE = re.compile(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@ -]{0,200}\.nmconnection\Z")


Run = Callable[[Sequence[str], str], Tuple[int, str, str]]


def chosen(converter: str, which: Callable[[str], str | None] | None = None, run: Run | None = None) -> Run | None:
    """What starts nmstatectl, None when documents are converted here; ``auto``: by it where it is installed."""
    if converter == "builtin":
        return None
    import shutil  # a server that needs it seldom starts without it

    there = (which or shutil.which)(COMMAND[0]) is not None
    if converter == "nmstatectl" and not there:
        raise ImageError("nmstate: nmstatectl is not installed on this machine; install it or use nmstate: builtin")
    return (run or start) if there else None


def start(command: Sequence[str], text: str) -> tuple[int, str, str]:
    """Run a command with a text as its input."""
    import subprocess

    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            list(command), input=text, capture_output=True, encoding="utf-8", errors="replace", check=False,
            timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"{command[0]} did not run to its end: {type(error).__name__}") from error
    return done.returncode, done.stdout, done.stderr


def with_nmstatectl(
    document: Mapping[str, Any], run: Callable[[Sequence[str], str], tuple[int, str, str]]
) -> dict[str, str]:
    """Keyfiles by nmstatectl; ``run(command, stdin)`` gives exit code, stdout and stderr."""
    try:
        text = json.dumps(document, sort_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ImageError(f"the NMState document is no plain data: {ascii(str(error))!s:.100}") from error
    code, out, err = run(COMMAND, text)
    if code != 0:
        raise ImageError("nmstatectl refuses the NMState document: %s" % (_last(err) or f"exit code {code}"))
    made = Fields(parse(out), "nmstatectl's output")
    files: dict[str, str] = {}
    for at, pair in enumerate(made.entries("NetworkManager")):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)):
            raise ImageError(f"{made.at('NetworkManager')}[{at}] is no pair of file name and text")
        name, content = pair
        if not _FILE.match(name) or name in files:
            raise ImageError(f"{made.at('NetworkManager')}[{at}]: file name {name[:60]!a} cannot be used")
        files[name] = content
    return files


def _last(err: str) -> str:
    """The program's reason: the last lines that are not its own log."""
    lines = [line.strip() for line in err.splitlines() if line.strip() and not _DATED.match(line)]
    return " ".join(lines[-3:])[:500]
