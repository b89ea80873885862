# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power control, between the server of an API and its machine: power switch, firmware time and boot source.

`PowerControl` is what all servers have; then how cloud servers and dedicated servers differ.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import time
from collections.abc import Callable

from lab.api.resources import Boot, Server
from lab.machines.base import BootSource, Firmware, FromDisk, Machine, OnOff, Rescue
from lab.robot.model import Activation, Dedicated, HostFingerprint, other_fingerprint

from .delays import Delays
from .faults import BootFault, Faults

log = logging.getLogger(__name__)


class PowerControl(abc.ABC):
    """Power control of one server. Firmware time passes before the guest starts, unless the profile says zero."""

    def __init__(self, delays: Delays, faults: Faults) -> None:
        self.powered = False
        self.boots_from_disk = False  # what the guest that runs was started from
        self._delays = delays
        self._faults = faults
        self._machine: Machine | None = None
        self._starting: asyncio.Task[None] | None = None
        self._fault: BootFault | None = None
        self._scripted = False

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """What scripts of faults may call this server; delays are drawn for the first name."""

    @abc.abstractmethod
    def rescue_armed(self) -> bool:
        """Whether the next boot would take the rescue."""

    @abc.abstractmethod
    def take_source(self, *, ignore_rescue: bool, from_inside: bool) -> BootSource:
        """What boots now; an armed rescue is consumed, unless this boot ignores it.

        ``from_inside``: the guest reboots by itself, the power switch was not used.
        """

    def firmware_seconds(self, *, rescue: bool) -> float:
        """How long from the power button to the start of the guest."""
        return self._delays.firmware(self.names[0], rescue=rescue)

    def reboot_seconds(self, *, rescue: bool) -> float:
        """The same for a guest that reboots by itself; nothing, unless a kind of server says more."""
        del rescue
        return 0.0

    @abc.abstractmethod
    def on_switched(self) -> None:
        """Called when the power switch was used."""

    def went_off(self) -> None:
        """Called when the guest switched itself off."""
        self.powered = False

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            raise RuntimeError(f"server {self.names[0]} has no machine yet")
        return self._machine

    @property
    def running(self) -> bool:
        """Whether the guest has power; false while the firmware works."""
        return self._machine is not None and self._machine.running and not self._machine.in_firmware

    @property
    def boot_order(self) -> tuple[int, ...]:
        """The disks in the order in which the firmware tries them; nothing before there is a machine."""
        return self._machine.boot_order if self._machine is not None else ()

    def console(self) -> str:
        """What the machine printed since it was switched on."""
        return self._machine.console() if self._machine is not None else ""

    def install(self, build: Callable[[Firmware, OnOff], Machine]) -> Machine:
        """Put a machine in; ``build`` is given the firmware and what to call when the guest goes off."""
        self._machine = build(self._boot_source, self.went_off)
        self._machine.firmware_delay = self._firmware_delay
        return self._machine

    async def switch_on(self) -> None:
        """Power on; returns at once while the firmware works. No effect on a machine that is on."""
        if self.powered:
            return
        self.powered = True
        self.on_switched()
        await self._boot()

    async def cut_power(self) -> None:
        self.powered = False
        self.on_switched()
        await self._stop_starting()
        await self.machine.cut_power()

    async def reset(self) -> None:
        await self._stop_starting()
        await self.machine.cut_power()
        self.powered = True
        self.on_switched()
        await self._boot()

    async def press_power_button(self) -> None:
        """ACPI power button; without effect while the firmware works."""
        if self.running:
            await self.machine.press_power_button()

    async def request_reboot(self) -> None:
        """ACPI reboot; without effect while the firmware works."""
        if self.running:
            await self.machine.request_reboot()

    async def destroy(self) -> None:
        self.powered = False
        self.on_switched()
        await self._stop_starting()
        if self._machine is not None:
            await self._machine.destroy()

    async def _boot(self) -> None:
        self._fault, self._scripted = self._faults.boot(self.names), True
        rescue = self.rescue_armed() and not _ignores_rescue(self._fault)
        seconds = self.firmware_seconds(rescue=rescue) + (self._fault.delay if self._fault else 0.0)
        if self._fault is not None and self._fault.effect == "dead":
            return
        if seconds <= 0:
            await self.machine.power_on()
            return
        self._starting = asyncio.get_running_loop().create_task(self._boot_later(seconds))

    async def _boot_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            await self.machine.power_on()
        except Exception:
            # No request waits for this boot. As on the platform, a user sees a guest that does not start.
            log.exception("server %s does not boot", self.names[0])

    async def _stop_starting(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
            self._starting = None

    def _firmware_delay(self) -> float:
        """Seconds of firmware before a boot that the guest began; before other boots they have passed already."""
        return 0.0 if self._scripted else self.reboot_seconds(rescue=self.rescue_armed())

    def _boot_source(self) -> BootSource:
        """The firmware: asked by the machine once for each boot."""
        # A reboot from inside does not use the power switch, so the faults are looked up here.
        from_inside = not self._scripted
        fault = self._faults.boot(self.names) if from_inside else self._fault
        self._fault, self._scripted = None, False
        source = self.take_source(ignore_rescue=_ignores_rescue(fault), from_inside=from_inside)
        self.boots_from_disk = isinstance(source, FromDisk)
        return source


def _ignores_rescue(fault: BootFault | None) -> bool:
    return fault is not None and fault.effect == "ignore_rescue"


class ServerPower(PowerControl):
    """Power control of one cloud server."""

    def __init__(self, server: Server, delays: Delays, faults: Faults) -> None:
        super().__init__(delays, faults)
        self.server = server
        self._noticing: asyncio.Task[None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """A server's name is unique in its project."""
        return (self.server.name,)

    def rescue_armed(self) -> bool:
        """Whether the next boot would take the rescue."""
        return self.server.armed_rescue() is not None

    def take_source(self, *, ignore_rescue: bool, from_inside: bool) -> BootSource:
        """The rescue when one is armed, else the disk."""
        rescue = self.server.armed_rescue()
        if rescue is None or ignore_rescue:
            self.server.boots.append(Boot(time.time(), "disk"))
            return FromDisk()
        self.server.rescue = None
        self.server.boots.append(Boot(time.time(), "rescue", rescue.authorized_keys))
        return Rescue(rescue.authorized_keys)

    def on_switched(self) -> None:
        """An action sets the status now: forget that the guest went off."""
        if self._noticing is not None:
            self._noticing.cancel()
            self._noticing = None

    def went_off(self) -> None:
        """The guest switched itself off: the API notices a little later."""
        super().went_off()
        if self.server.status not in ("running", "starting"):
            return
        self.server.status = "stopping"
        self._noticing = asyncio.get_running_loop().create_task(self._notice_off())

    async def _notice_off(self) -> None:
        await asyncio.sleep(self._delays.soft_off(self.server.name))
        if self.server.status == "stopping":
            self.server.status = "off"


class DedicatedPower(PowerControl):
    """Power control of one dedicated server: its reset types, and what its next boot takes."""

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
        host_keys = tuple((key.type.lower(), key.private) for key in activation.host_keys)
        return Rescue(keys, activation.password, host_keys)

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
