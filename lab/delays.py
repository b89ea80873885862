# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the platform takes: measured durations, drawn reproducibly for each machine."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

#: What a guest of each kind needs from its start to answering SSH in the rescue; the rest is the firmware's share.
GUEST_SECONDS: Mapping[str, float] = MappingProxyType({"dry": 0.0, "nspawn": 1.0, "qemu": 6.0})
#: Actions whose time passes while the firmware already works, so that they must not be added to it.
OVERLAPPED = frozenset({"start_server", "reset_server", "reboot_server"})


@dataclass(frozen=True)
class Span:
    """A duration in seconds as it was measured: shortest, typical (the mean) and longest."""

    low: float
    typical: float
    high: float

    def draw(self, source: random.Random) -> float:
        """One duration; the mean of many is ``typical``, all lie between ``low`` and ``high``."""
        if self.high == self.low:
            return self.low
        # Weighing the two halves like this makes the mean come out at the typical value.
        short = source.random() < (self.high - self.typical) / (self.high - self.low)
        return source.uniform(self.low, self.typical) if short else source.uniform(self.typical, self.high)


NOTHING = Span(0, 0, 0)


@dataclass(frozen=True)
class Profile:
    """The durations of one platform: actions by command, power-on to answering SSH by what boots."""

    name: str
    actions: Mapping[str, Span]
    other_action: Span
    rescue_ssh: Span
    disk_boot: Span
    soft_off: Span
    dedicated_rescue: Span
    dedicated_boot: Span


INSTANT = Profile("instant", MappingProxyType({}), NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)

#: Measured by others on the real platform: create, enable_rescue, the rescue boots, and the boot of a dedicated server
#: from its disk; the rest is plausible.
HETZNER = Profile(
    name="hetzner",
    actions=MappingProxyType(
        {
            "create_server": Span(11, 19, 21),
            "enable_rescue": Span(9, 14, 23),
            "disable_rescue": Span(2, 3, 5),
            "start_server": Span(3, 5, 8),
            "stop_server": Span(2, 3, 5),
            "reset_server": Span(2, 3, 5),
            "shutdown_server": Span(0.5, 1, 2),
            "reboot_server": Span(0.5, 1, 2),
            "delete_server": Span(2, 3, 6),
            "rebuild_server": Span(11, 19, 21),
            "change_server_type": Span(20, 30, 60),
            "create_image": Span(30, 60, 120),
            "change_protection": Span(0.2, 0.5, 1),
        }
    ),
    other_action=Span(1, 2, 4),
    rescue_ssh=Span(37, 38, 42),
    disk_boot=Span(6, 8, 12),
    soft_off=Span(1, 2, 4),
    dedicated_rescue=Span(86, 91, 150),
    dedicated_boot=Span(55, 69, 90),
)

PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in (INSTANT, HETZNER)})


@dataclass
class Delays:
    """Draws the delays of every machine and remembers them, so that a benchmark can subtract the platform."""

    profile: Profile
    kind: str
    seed: int = 0
    _drawn: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def action(self, machine: str, command: str) -> float:
        """How long this action of this machine takes."""
        return self._draw(machine, command, self.profile.actions.get(command, self.profile.other_action))

    def firmware(self, machine: str, *, rescue: bool, dedicated: bool = False) -> float:
        """How long from the power button to the start of the guest."""
        guest = GUEST_SECONDS[self.kind]
        if not rescue:
            if dedicated:
                return self._draw(machine, "firmware_disk", self.profile.dedicated_boot, less=guest)
            return self._draw(machine, "firmware_disk", self.profile.disk_boot)
        span = self.profile.dedicated_rescue if dedicated else self.profile.rescue_ssh
        return self._draw(machine, "firmware_rescue", span, less=guest)

    def soft_off(self, machine: str) -> float:
        """How long the API takes to notice that a guest switched itself off."""
        return self._draw(machine, "soft_off", self.profile.soft_off)

    def report(self) -> dict[str, Any]:
        """All delays drawn so far, per machine; ``total`` leaves out what passes during the firmware's time."""
        machines = {
            name: {
                "total": round(sum(entry["seconds"] for entry in entries if not entry["overlapped"]), 3),
                "delays": list(entries),
            }
            for name, entries in self._drawn.items()
        }
        return {"profile": self.profile.name, "kind": self.kind, "seed": self.seed, "machines": machines}

    def _draw(self, machine: str, what: str, span: Span, less: float = 0.0) -> float:
        # Each draw has a generator of its own, so that the order in which machines act changes nothing.
        nth = self._counts[machine, what]
        self._counts[machine, what] += 1
        seconds = max(0.0, span.draw(random.Random(f"{self.seed}/{machine}/{what}/{nth}")) - less)
        entry = {"what": what, "seconds": round(seconds, 3), "at": time.time(), "overlapped": what in OVERLAPPED}
        self._drawn.setdefault(machine, []).append(entry)
        return seconds
