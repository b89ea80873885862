# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power control, between the server of an API and its machine: power switch, firmware time and boot source."""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Callable

from lab.machines.base import BootSource, Firmware, FromDisk, Machine, OnOff

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
