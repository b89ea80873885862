# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a Robot account, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.robot.hostkeys import HostKey
from lab.robot.specs import DedicatedSpec

#: The six kinds of boot configuration, in the order of the answer.
KINDS = ("rescue", "linux", "vnc", "windows", "plesk", "cpanel")


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
    """A boot configuration that was asked for, until a boot takes it, somebody withdraws it, or it lapses."""

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
    told: tuple[HostFingerprint, ...] = ()

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
class Dedicated:
    """A dedicated server; the machine is its chassis' business."""

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

    def activation(self, now: float) -> Activation | None:
        """The boot configuration that the next boot would take; there is never more than one."""
        return next((last for last in self.last.values() if last.active(now)), None)

    def offers(self, kind: str) -> bool:
        """Whether this server has this kind of boot configuration."""
        return {"rescue": self.spec.rescue, "linux": True, "vnc": True}.get(kind, False)
