# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: BSD-2-Clause
"""What a document says of its interfaces, once it was read."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from .values import Address

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
}


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
class Interface:
    """One interface and its profile; ``ports`` is None when the document lists none."""

    name: str
    kind: str
    path: str
    profile: str
    state: str = UP
    by_mac: bool = False
    mac: str | None = None
    mtu: int | None = None
    controller: str | None = None
    ports: list[Port] | None = None
    base: str | None = None
    base_at: tuple[str, str] = ("", "")  # the keyfile's section that names the base, and where the document does
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
        return "%s:%s" % (self.kind, self.name) if self.kind in ("ovs-bridge", "ovs-port") else self.name

    @property
    def uuid(self) -> str:
        """The profile's identity: of kind and name alone, as nmstatectl makes it."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, "%s://%s" % (self.kind, self.name)))

    def stack(self, version: int) -> Stack:
        """The stack of an IP version."""
        return self.v4 if version == 4 else self.v6

    def section(self, name: str) -> dict[str, str]:
        """A section of the keyfile, made when it is not there."""
        return self.settings.setdefault(name, {})
