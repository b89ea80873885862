# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""The interfaces of a document once they are read, their names and addresses, and the text of a keyfile."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from ..image_error import ImageError
from .document import Fields, shown

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_NAME = re.compile(r"[A-Za-z0-9_+@-][A-Za-z0-9_.+@-]{0,14}\Z")  # 15 bytes, no slash, colon or blank; no hidden file
LOOPBACK = "lo"
_RESERVED = ("all", "default", "bonding_masters", LOOPBACK)
_PROFILE = re.compile(r"[A-Za-z0-9_+@-]([A-Za-z0-9_.+@ -]{0,98}[A-Za-z0-9_+@-])?\Z")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(\1[0-9A-Fa-f]{2}){4}\Z")
#: a line of a keyfile with a value that is a secret, from its beginning to its equals sign
SECRET = re.compile(
    r"^[ \t]*(?=[\w.-]+[ \t]*=)(?:[\w.-]*(?:password|passwd|psk|secret|wep-key|private-key|mka-cak)[\w.-]*|pin)[ \t]*=",
    re.IGNORECASE | re.MULTILINE,
)
MOST_INTERFACES = 500
UP, DOWN, ABSENT, IGNORE = "up", "down", "absent", "ignore"
NAMES = {  # NMState's name of a kind → NetworkManager's
    "ethernet": "802-3-ethernet",
    "bond": "bond",
    "vlan": "vlan",
    "linux-bridge": "bridge",
    "dummy": "dummy",
    "veth": "veth",
    "infiniband": "infiniband",
    "vxlan": "vxlan",
    "mac-vlan": "macvlan",
    "mac-vtap": "macvlan",
    "vrf": "vrf",
    "ovs-bridge": "ovs-bridge",
    "ovs-port": "ovs-port",
    "ovs-interface": "ovs-interface",
    "macsec": "macsec",
    "hsr": "hsr",
    "ipvlan": "ipvlan",
    "loopback": "loopback",
}
_SECTIONS = (
    "connection", "match", "bond", "bond-port", "bridge", "bridge-port", "ipv4", "ipv6", "ovs-bridge", "ovs-port",
    "ovs-interface", "ovs-patch", "ovs-dpdk", "ethernet", "vlan", "vxlan", "sriov", "macvlan", "ipvlan", "macsec",
    "hsr", "vrf", "veth", "dummy", "loopback", "user", "802-1x", "ethtool", "infiniband", "ovs-external-ids",
    "ovs-other-config",
)  # fmt: skip


def interface_name(text: str, path: str) -> str:
    """The name of an interface that is not the loopback one."""
    if not _NAME.match(text) or text in _RESERVED:
        raise ImageError(
            f"{path}: {shown(text)} is no name for an interface: 1 to 15 letters, digits or any of _.+@-, not "
            f"{', '.join(_RESERVED)}"
        )
    return text


def profile_name(text: str, path: str) -> str:
    """A profile's name, which is also its file's."""
    if not _PROFILE.match(text):
        raise ImageError(
            f"{path}: {shown(text)} is no name for a profile: 1 to 100 letters, digits, blanks or any of _.+@-"
        )
    return text


def mac(text: str, path: str, *, group: bool = False) -> str:
    """A MAC address in capitals with colons; ``group``: of a group rather than of one interface."""
    if not _MAC.match(text):
        raise ImageError(f"{path}: {shown(text)} is no MAC address such as 52:54:00:12:34:56")
    found = text.upper().replace("-", ":")
    if not group and (int(found[:2], 16) & 1 or found == "00:00:00:00:00:00"):
        raise ImageError(f"{path}: {found} is no address of a single interface")
    return found


def address(text: str, path: str, version: int | None = None) -> Address:
    """An address, of one version when that is given."""
    if "%" in text:
        raise ImageError(f"{path}: {shown(text)} has a zone, which has no place here")
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        raise ImageError(f"{path}: {shown(text)} is no IP address") from error
    if version is not None and found.version != version:
        raise ImageError(f"{path}: {shown(text)} is no IPv{version} address")
    return found


def host_address(text: str, path: str, version: int) -> Address:
    """An address that an interface or a gateway can have."""
    found = address(text, path, version)
    if found.is_multicast or found.is_unspecified or found.is_loopback or str(found) == "255.255.255.255":
        raise ImageError(f"{path}: {found} is no address of a host")
    return found


def network(text: str, path: str) -> Network:
    """A network; without a prefix length, one address; bits of the host are cleared."""
    whole, slash, prefix = text.partition("/")
    found = address(whole, path)
    if slash and not (re.match(r"[0-9]{1,3}\Z", prefix) and int(prefix) <= found.max_prefixlen):
        raise ImageError(f"{path}: {shown(text)} has no prefix length of 0 to {found.max_prefixlen}")
    return ipaddress.ip_network(f"{whole}/{prefix if slash else found.max_prefixlen}", strict=False)


def mac_of(fields: Fields, key: str, *, group: bool = False) -> str | None:
    text = fields.text(key)
    return None if text is None else mac(text, fields.at(key), group=group)


@dataclass
class Stack:
    """One IP version of an interface; ``given``: the document speaks of it."""

    version: int
    given: bool = False
    enabled: bool = False
    automatic: bool = False
    own_dns: bool = False  # static, or automatic without the network's name servers
    addresses: tuple[tuple[Address, int], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    routes: int = 0  # how many of each the settings have
    rules: int = 0
    tables: set[int] = field(default_factory=set)


@dataclass
class Port:
    """A controller's port, with what the controller says of it."""

    name: str
    path: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class OvsPort:
    """A port of an ovs-bridge: a profile of its own, with one interface or, as a bond, several."""

    name: str
    path: str
    members: list[Port]
    settings: dict[str, str] = field(default_factory=dict)
    data: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class Below:
    """An interface that another one stands on: ``section`` and ``key`` of the keyfile name it."""

    name: str
    path: str
    section: str
    key: str


@dataclass
class Interface:
    """One interface and its profile; ``ports`` is None when the document lists none."""

    name: str
    kind: str
    path: str
    profile: str
    state: str = UP
    identity: tuple[str, str] | None = None  # the key and the address it goes by; the kernel does not know its name
    mac: str | None = None
    mtu: int | None = None
    controller: str | None = None
    ports: list[Port] | None = None
    below: list[Below] = field(default_factory=list)
    same: tuple[str, ...] = ()  # what no other interface may be, too
    copy_mac: str | None = None  # the interface whose MAC address it gets
    table: int | None = None  # of a VRF
    peer: str | None = None
    ovs_ports: list[OvsPort] = field(default_factory=list)
    ovs_data: dict[str, dict[str, str]] = field(default_factory=dict)  # sections of the keyfile
    has_ip: bool = True  # whether its profile speaks of IP
    primary: str | None = None
    v4: Stack = field(default_factory=lambda: Stack(4))
    v6: Stack = field(default_factory=lambda: Stack(6))
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Where it is in the table of interfaces; what is none of the kernel's may have the name of one that is."""
        return f"{self.kind}:{self.name}" if self.kind in ("ovs-bridge", "ovs-port") else self.name

    @property
    def nameless(self) -> bool:
        """Whether it goes by a MAC or PCI address."""
        return self.identity is not None

    @property
    def uuid(self) -> str:
        """The profile's identity: of kind and name alone, as nmstatectl makes it."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.kind}://{self.name}"))

    def stack(self, version: int) -> Stack:
        return self.v4 if version == 4 else self.v6

    def section(self, name: str) -> dict[str, str]:
        """A section of the keyfile, made when it is not there."""
        return self.settings.setdefault(name, {})


def keyfile_text(settings: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a keyfile; empty values are left out."""
    parts = []
    for section in sorted(settings, key=_SECTIONS.index):
        lines = [f"{key}={_keyfile_value(value)}\n" for key, value in sorted(settings[section].items()) if value]
        parts.append(f"[{section}]\n{''.join(lines)}")
    return "\n".join(parts)


def _keyfile_value(text: str) -> str:
    """A value as GLib's key files escape it."""
    if any(ord(one) < 32 or ord(one) == 127 for one in text):
        raise ImageError(f"a value of a keyfile has a control character: {text[:60]!a}")
    escaped = text.replace("\\", "\\\\")
    blanks = len(escaped) - len(escaped.lstrip(" "))
    return "\\s" * blanks + escaped[blanks:]


def true_false(value: bool) -> str:
    return "true" if value else "false"
