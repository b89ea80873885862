# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a Robot account, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field

from .host_keys import HostKey
from .specs import DedicatedSpec

#: The six kinds of boot configuration, in the order of the answer.
KINDS = ("rescue", "linux", "vnc", "windows", "plesk", "cpanel")
#: The rules of a firewall by chain.
Rules = dict[str, list[dict[str, str | None]]]


@dataclass
class Key:
    """A public SSH key of the account; ``created`` in Unix seconds."""

    name: str
    fingerprint: str
    type: str
    size: int
    data: str
    created: float


@dataclass(frozen=True)
class HostFingerprint:
    """What the API says of one host key of a rescue."""

    fingerprint: str
    type: str
    size: int


@dataclass
class Activation:
    """A boot configuration that was asked for, until a boot takes it, a client withdraws it, or it expires."""

    kind: str
    system: str  # the os of a rescue, the dist of an installation
    arch: int
    lang: str
    password: str
    keys: tuple[Key, ...]
    expires: float
    host_keys: tuple[HostKey, ...] = ()
    withdrawn: bool = False
    booted: float | None = None
    shown: tuple[HostFingerprint, ...] = ()

    def active(self, now: float) -> bool:
        """Whether the next boot would take it."""
        return self.booted is None and not self.withdrawn and now < self.expires


@dataclass(frozen=True)
class Boot:
    """One boot that happened; ``at`` in Unix seconds."""

    at: float
    source: str
    authorized_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reset:
    """One reset that was asked for and accepted; ``at`` in Unix seconds."""

    at: float
    type: str


@dataclass
class TrafficWarnings:
    """When Robot writes a mail about the traffic of an address (GB an hour and a day, TB a month)."""

    on: bool = False
    hourly: int = 200
    daily: int = 2000
    monthly: int = 20


@dataclass
class Firewall:
    """The firewall of a server, metadata only; a change is in process until ``busy_until``."""

    status: str = "disabled"
    filter_ipv6: bool = False
    whitelist_hos: bool = True
    rules: Rules = field(default_factory=lambda: {"input": [], "output": []})
    busy_until: float = 0.0


@dataclass
class Template:
    """A set of rules for firewalls."""

    id: int
    name: str
    filter_ipv6: bool
    whitelist_hos: bool
    is_default: bool
    rules: Rules


@dataclass
class VSwitch:
    """A virtual switch; its members by server number, each in process until a moment."""

    id: int
    name: str
    vlan: int
    cancelled: bool = False
    members: dict[int, float] = field(default_factory=dict)

    def busy(self, now: float) -> bool:
        """Whether a change is in process."""
        return any(now < until for until in self.members.values())


@dataclass
class Dedicated:
    """A dedicated server as Robot knows it; `DedicatedPower` handles its machine."""

    number: int
    name: str
    index: int
    spec: DedicatedSpec
    ipv4: str
    ipv6_net: str
    mac: str
    last: dict[str, Activation] = field(default_factory=dict)
    boots: list[Boot] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    manual_reset: bool = False
    pointers: dict[str, str] = field(default_factory=dict)  #: reverse DNS by address
    traffic: dict[str, TrafficWarnings] = field(default_factory=dict)  #: by address and by network
    routed: dict[str, int | None] = field(default_factory=dict)  #: its failover addresses: to which server
    firewall: Firewall = field(default_factory=Firewall)

    def activation(self, now: float) -> Activation | None:
        """The boot configuration that the next boot would take; there is never more than one."""
        return next((last for last in self.last.values() if last.active(now)), None)

    def offers(self, kind: str) -> bool:
        """Whether this server has this kind of boot configuration."""
        return {"rescue": self.spec.rescue, "linux": True, "vnc": True}.get(kind, False)
