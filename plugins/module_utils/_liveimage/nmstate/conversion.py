# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""A whole document: read, checked, connected, written.

NetworkManager keeps name servers in profiles, so one interface of each IP version is chosen for them. Ports belong to
their controllers, interfaces to their bases and peers; conflicts are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Sequence, Tuple

from ..image_error import ImageError
from . import controllers
from .document import Fields, parse, shown
from .interface import interface
from .ip import routes, rules, stack
from .profile import (
    ABSENT,
    DOWN,
    IGNORE,
    MOST_INTERFACES,
    NAMES,
    UP,
    Address,
    Below,
    Interface,
    OvsPort,
    Port,
    address,
    interface_name,
    keyfile_text,
    true_false,
)

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


def with_nmstatectl(document: Mapping[str, Any], run: Run) -> dict[str, str]:
    """Keyfiles by nmstatectl; ``run(command, stdin)`` gives exit code, stdout and stderr."""
    try:
        text = json.dumps(document, sort_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ImageError(f"the NMState document is no plain data: {ascii(str(error))!s:.100}") from error
    code, out, err = run(COMMAND, text)
    if code != 0:
        raise ImageError(f"nmstatectl refuses the NMState document: {_last(err) or 'exit code ' + str(code)}")
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


_CONTROLLERS = ("bond", "linux-bridge", "vrf")
_SINCE = {"hsr": "1.46", "ipvlan": "1.52"}  # NetworkManager


def connect(found: dict[str, Interface], others: Mapping[str, str]) -> list[str]:
    """Give every interface its controller, base and peer. What the user should know.

    ``others``: the state of those that are described and get no profile. What the document does not describe gets
    none, too: the live system's other configuration decides about it. But a controller's port that is only listed is
    taken for an ethernet interface, as nmstatectl does; without a profile it would not join its controller.
    """
    gone = {name for name, state in others.items() if state == ABSENT}
    for one in list(found.values()):
        if one.peer is not None:
            _pair(found, gone, one)
    warnings = _assume_ports(found, others)
    unlisted = {one.key for one in found.values() if one.kind in (*_CONTROLLERS, "ovs-bridge") and one.ports is None}
    for one in found.values():
        _join(found, unlisted, one)
        if one.kind in _SINCE:
            warnings.append(
                f"{one.path}: {one.kind} needs NetworkManager {_SINCE[one.kind]} or newer in the live system"
            )
    for one in list(found.values()):
        if one.kind == "ovs-bridge":
            warnings += controllers.attach_ovs(found, one)
        for port in one.ports or [] if one.kind != "ovs-bridge" else []:
            if port.name in found or port.name in gone:
                _attach(found, gone, one, port)
        for base in one.below:
            _put_on(found, gone, one, base)
        if one.primary is not None:
            _check_primary(found, one)
        if one.copy_mac is not None:
            _copy_mac(found, one)
    for one in found.values():
        controllers.check_ovs(one)
    _check_addresses(found)
    _check_identities(found)
    return warnings


def _assume_ports(found: dict[str, Interface], others: Mapping[str, str]) -> list[str]:
    """Describe ports that are only listed; what the user should know of those, and of ports that stay alone."""
    warnings = []
    for one in list(found.values()):
        members = [member for port in one.ovs_ports for member in port.members]
        for port in members if one.kind == "ovs-bridge" else one.ports or []:
            if others.get(port.name) == IGNORE:
                warnings.append(
                    f"{port.path}: {port.name} is ignored elsewhere, so it gets no profile and does not become a port "
                    f"of {one.name}"
                )
            if port.name in found or port.name in others:
                continue
            if len(found) >= MOST_INTERFACES:
                raise ImageError(
                    f"the document has more than {MOST_INTERFACES} interfaces with the ports that it lists"
                )
            warnings.append(f"{port.path}: {port.name} is not described, so it is taken for an ethernet interface")
            found[port.name] = Interface(
                port.name, "ethernet", port.path, port.name, UP, v4=stack(None, 4), v6=stack(None, 6)
            )
    return warnings


def ordered(found: dict[str, Interface]) -> list[Interface]:
    """Controllers before ports, bases before the interfaces on them; else in the order of the document."""
    done: dict[str, Interface] = {}

    def add(one: Interface) -> None:
        if one.key not in done:
            for name in [*filter(None, (one.controller,)), *(base.name for base in one.below)]:
                if name in found:
                    add(found[name])
            done[one.key] = one

    _check_circles(found)
    for one in found.values():
        add(one)
    return list(done.values())


def _check_circles(found: dict[str, Interface]) -> None:
    """A controller needs its ports, a VLAN needs its base; no interface may need itself."""
    settled: set[str] = set()
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in settled or name not in found:
            return
        if name in under_way:
            circle = " → ".join([*under_way[under_way.index(name) :], name])
            raise ImageError(f"{found[name].path} stands on itself: {circle}")
        under_way.append(name)
        one = found[name]
        for below in [*(port.name for port in one.ports or []), *(base.name for base in one.below)]:
            visit(below)
        settled.add(under_way.pop())

    for name in found:
        visit(name)


def _join(found: dict[str, Interface], unlisted: set[str], one: Interface) -> None:
    """A port that names its controller itself; ``unlisted``: controllers that do not name their ports."""
    name, one.controller = one.controller, None
    if not name:
        return
    path = one.path + ".controller"
    controller = found.get(interface_name(name, path))
    if controller is None or controller.kind not in _CONTROLLERS:
        controller = found.get("ovs-bridge:" + name)
    if controller is None:
        raise ImageError(f"{path}: {name} is no bond, bridge or VRF of this document")
    members = [member for port in controller.ovs_ports for member in port.members]
    if controller.key in unlisted:
        controller.ports = [*(controller.ports or []), Port(one.name, path)]
        controller.ovs_ports.append(OvsPort(one.name, path, [Port(one.name, path)]))
    elif all(port.name != one.name for port in members or controller.ports or []):
        raise ImageError(f"{path}: {name} does not list {one.name} among its ports")


def _attach(found: dict[str, Interface], gone: set[str], controller: Interface, port: Port) -> None:
    if port.name in gone:
        raise ImageError(f"{port.path}: {port.name} is a port here and absent elsewhere")
    one = found[port.name]
    routed = controller.kind == "vrf"
    if one is controller or one.kind == "vrf" or (not routed and one.kind == "linux-bridge") or (
        one.kind == "bond" and controller.kind == "bond"
    ):  # fmt: skip
        raise ImageError(f"{port.path}: {one.name} ({one.kind}) cannot be a port of a {controller.kind}")
    if one.controller is not None:
        raise ImageError(f"{port.path}: {one.name} is already a port of {one.controller}")
    for version in (4, 6):
        if one.stack(version).enabled and not routed:
            raise ImageError(
                f"{one.path}.ipv{version} is enabled, yet {one.name} is a port of {controller.name}; give the "
                f"addresses to {controller.name}"
            )
    one.controller = controller.name
    one.has_ip = routed
    connection = one.section("connection")
    connection["master"] = controller.name
    connection["slave-type"] = NAMES[controller.kind]
    if controller.kind == "linux-bridge":
        one.section("bridge-port").update(port.settings)
    elif port.settings:
        one.section("bond-port").update(port.settings)


def _put_on(found: dict[str, Interface], gone: set[str], one: Interface, below: Below) -> None:
    name, path = below.name, below.path
    if name in gone:
        raise ImageError(f"{path}: {name} is absent")
    base = found.get(name)
    for other in found.values():
        if other is not one and one.same and other.same == one.same:
            raise ImageError(f"{one.path}: {one.same[0]} is {other.name} already")
    if base is not None and one.mtu is not None and base.mtu is not None and one.mtu > base.mtu:
        raise ImageError(f"{one.path}.mtu: {one.mtu} is more than the {base.mtu} of {name}")
    if base is not None and base.nameless and below.key != "parent":
        raise ImageError(f"{path}: {name} goes by its MAC or PCI address, its name is not known to the kernel")
    one.section(below.section)[below.key] = base.uuid if base is not None and base.nameless else name


def _pair(found: dict[str, Interface], gone: set[str], one: Interface) -> None:
    name = one.peer or ""
    if name in gone:
        raise ImageError(f"{one.path}.veth.peer: {name} is absent")
    other = found.get(name)
    if other is None:  # the one profile that is made for what is not described: without it there would be no pair
        other = Interface(name, "veth", one.path + ".veth.peer", name, UP, v4=stack(None, 4), v6=stack(None, 6))
        other.peer = one.name
        other.settings["veth"] = {"peer": one.name}
        found[name] = other
    if other.kind != "veth" or other.peer != one.name:
        raise ImageError(f"{one.path}.veth.peer: {name} is not the other end")


def _check_primary(found: dict[str, Interface], one: Interface) -> None:
    path = one.path + ".link-aggregation.options.primary"
    port = found.get(one.primary or "")
    if all(other.name != one.primary for other in one.ports or []):
        raise ImageError(f"{path}: {one.primary} is no port of this bond")
    if port is not None and port.nameless:
        raise ImageError(f"{path}: {one.primary} goes by its MAC or PCI address, its name is not known to the kernel")


def _copy_mac(found: dict[str, Interface], one: Interface) -> None:
    source = found.get(one.copy_mac or "")
    if source is None or source.mac is None:
        raise ImageError(
            f"{one.path}.copy-mac-from: the MAC address of {one.copy_mac} is not known before the host boots; "
            "give mac-address there"
        )
    one.section("ethernet")["cloned-mac-address"] = source.mac


def _check_addresses(found: dict[str, Interface]) -> None:
    seen: dict[object, Interface] = {}
    for one in found.values():
        for version in (4, 6):
            for own, dummy in one.stack(version).addresses:
                router = one.controller if found.get(one.controller or "", one).kind == "vrf" else None
                other = seen.setdefault((router, own), one)
                if other is not one:
                    raise ImageError(f"{one.path}.ipv{version}: {own} is also given to {other.name}")


def _check_identities(found: dict[str, Interface]) -> None:
    seen: dict[str, Interface] = {}
    for one in found.values():
        if one.identity is not None:
            key, value = one.identity
            if value in seen:
                raise ImageError(f"{one.path}.{key}: {value} identifies {seen[value].name} already")
            seen[value] = one


def connection(one: Interface) -> dict[str, str]:
    """The section every profile begins with."""
    found = {
        "id": one.profile,
        "uuid": one.uuid,
        "type": NAMES[one.kind],
        "autoconnect": true_false(one.state == UP),
        "autoconnect-slaves": "1" if one.kind in (*_CONTROLLERS, "ovs-bridge") else "-1",
    }
    if not one.nameless:
        found["interface-name"] = one.name
    return found
