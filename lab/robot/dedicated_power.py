# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power control of a dedicated server: its reset types, and what its next boot takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lab import power_control
from lab.delays import Delays
from lab.faults import Faults
from lab.machines.base import BootSource, FromDisk, Rescue

from .host_keys import other_fingerprint
from .model import Activation, Boot, Dedicated, HostFingerprint


class DedicatedPower(power_control.PowerControl):
    """Power control of one dedicated server."""

    def __init__(self, server: Dedicated, delays: Delays, faults: Faults, clock: Callable[[], float]) -> None:
        super().__init__(delays, faults)
        self.server = server
        self._clock = clock
        self._buttons = asyncio.Lock()
        self._hanging: asyncio.Task[None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The number, and the name if there is one."""
        return tuple(name for name in (str(self.server.number), self.server.name) if name)

    def rescue_armed(self) -> bool:
        activation = self.server.activation(self._clock())
        return activation is not None and _boots_rescue(activation)

    def take_source(self, *, ignore_rescue: bool, from_inside: bool) -> BootSource:
        """The rescue when one is armed, else the disk; any boot configuration is used up."""
        activation = None if ignore_rescue else self.server.activation(self._clock())
        if activation is None:
            self.server.boots.append(Boot(self._clock(), "disk"))
            if from_inside and self._hangs():
                # The reboot has begun already: the guest is silenced as soon as that is possible.
                self._hanging = asyncio.get_running_loop().create_task(self.machine.cut_power())
            return FromDisk()
        activation.booted = self._clock()
        if not _boots_rescue(activation):
            # Nothing of the lab's installs by itself: the configuration is used up and the disk boots.
            self.server.boots.append(Boot(self._clock(), activation.kind))
            return FromDisk()
        activation.shown = self._shown_keys(activation)
        keys = tuple(key.data for key in activation.keys)
        self.server.boots.append(Boot(self._clock(), "rescue", keys))
        return Rescue(keys, activation.password, tuple(key.private for key in activation.host_keys))

    def firmware_seconds(self, *, rescue: bool) -> float:
        """Dedicated servers take longer than cloud servers."""
        return self._delays.firmware(self.names[0], rescue=rescue, dedicated=True)

    def reboot_seconds(self, *, rescue: bool) -> float:
        """Every boot of a dedicated server goes through its firmware, a reboot from inside, too."""
        return self.firmware_seconds(rescue=rescue)

    def on_switched(self) -> None:
        """A guest that is started now must not be stopped by the fault of an earlier one."""
        if self._hanging is not None:
            self._hanging.cancel()
            self._hanging = None

    async def press(self, kind: str) -> None:
        """Do a reset of this type, or wake on LAN; what it does depends on the power and on the guest."""
        async with self._buttons:
            if kind == "sw":
                if self.running:
                    await self.machine.ctrl_alt_del()
            elif kind == "hw":
                if self.powered:
                    await self.reset()
            elif kind == "power" and self.powered:
                await self.press_power_button()
            elif kind in ("power", "wol"):
                await self.switch_on()
            elif kind == "power_long" and self.powered:
                await self.cut_power()

    async def begin(self) -> None:
        """Power on without firmware time, as if it had been on before; only the fault of a hanging system applies."""
        self.powered = True
        if self._hangs():
            self.server.boots.append(Boot(self._clock(), "disk"))
            return
        self._fault, self._scripted = None, True
        await self.machine.power_on()

    async def hang(self) -> None:
        """Let a system that is up and booted from disk hang, if the script of faults says so."""
        if self.running and self.server.boots[-1].source == "disk" and self._hangs():
            await self.machine.cut_power()

    async def _boot(self) -> None:
        if self.server.activation(self._clock()) is None and self._hangs():
            self.server.boots.append(Boot(self._clock(), "disk"))
            return
        await super()._boot()

    def _hangs(self) -> bool:
        """A system that hangs has power and does nothing: no SSH, no keyboard, no power button."""
        return self._faults.boot(self.names, {"deaf"}) is not None

    def _shown_keys(self, activation: Activation) -> tuple[HostFingerprint, ...]:
        """What the API will say of the rescue's host keys."""
        if self._faults.boot(self.names, {"host_keys_missing"}) is not None:
            return ()
        lies = self._faults.boot(self.names, {"other_host_keys"}) is not None
        return tuple(
            HostFingerprint(other_fingerprint() if lies else key.fingerprint, key.type, key.size)
            for key in activation.host_keys
        )


def _boots_rescue(activation: Activation) -> bool:
    """The vKVM system runs the disk's system in a virtual machine; the lab boots the disk."""
    return activation.kind == "rescue" and not activation.system.startswith("vkvm")
