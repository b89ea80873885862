# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between a server of the API and its machine: power switch, firmware time and boot source."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lab.api.model import Boot, Server, now
from lab.delays import Delays
from lab.faults import BootFault, Faults
from lab.machines.base import BootSource, FromDisk, Machine, Rescue

log = logging.getLogger(__name__)


class Chassis:
    """One server's hardware. The firmware takes its time before the guest starts, unless the profile says zero."""

    def __init__(self, server: Server, delays: Delays, faults: Faults) -> None:
        self.server = server
        self.powered = False
        self._delays = delays
        self._faults = faults
        self._machine: Machine | None = None
        self._starting: asyncio.Task[None] | None = None
        self._noticing: asyncio.Task[None] | None = None
        self._fault: BootFault | None = None
        self._scripted = False

    @property
    def machine(self) -> Machine:
        """The machine inside."""
        if self._machine is None:
            raise RuntimeError(f"server {self.server.name} has no machine yet")
        return self._machine

    @property
    def running(self) -> bool:
        """Whether the guest has power; false while the firmware is counting."""
        return self._machine is not None and self._machine.running

    def console(self) -> str:
        """What the machine printed since it was switched on."""
        return self._machine.console() if self._machine is not None else ""

    def install(self, build: Callable[[Callable[[], BootSource], Callable[[], None]], Machine]) -> Machine:
        """Put a machine in; ``build`` is given the firmware and what to call when the guest goes off."""
        self._machine = build(self._boot_source, self._went_off)
        return self._machine

    async def switch_on(self) -> None:
        """Power on; returns at once while the firmware is counting. No effect on a machine that is on."""
        if self.powered:
            return
        self.powered = True
        self._stop_noticing()
        await self._boot()

    async def cut_power(self) -> None:
        """Pull the plug."""
        self.powered = False
        self._stop_noticing()
        await self._stop_starting()
        await self.machine.cut_power()

    async def reset(self) -> None:
        """Hard power cycle."""
        await self._stop_starting()
        await self.machine.cut_power()
        self.powered = True
        self._stop_noticing()
        await self._boot()

    async def press_power_button(self) -> None:
        """ACPI power button; nobody listens while the firmware is counting."""
        if self.running:
            await self.machine.press_power_button()

    async def request_reboot(self) -> None:
        """ACPI reboot; nobody listens while the firmware is counting."""
        if self.running:
            await self.machine.request_reboot()

    async def destroy(self) -> None:
        """Remove the machine for good."""
        self.powered = False
        self._stop_noticing()
        await self._stop_starting()
        if self._machine is not None:
            await self._machine.destroy()

    async def _boot(self) -> None:
        self._fault, self._scripted = self._faults.boot(self.server.name), True
        rescue = self.server.armed_rescue() is not None and not self._ignores_rescue(self._fault)
        seconds = self._delays.firmware(self.server.name, rescue=rescue) + (self._fault.delay if self._fault else 0.0)
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
            # Nobody waits for this boot: a guest that does not start is what a user of the platform would see.
            log.exception("server %s does not boot", self.server.name)

    async def _stop_starting(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
            self._starting = None

    def _boot_source(self) -> BootSource:
        """The firmware: an armed rescue is consumed by the boot that takes it."""
        # A reboot from inside meets no power switch, so the script is asked here.
        fault = self._fault if self._scripted else self._faults.boot(self.server.name)
        self._fault, self._scripted = None, False
        rescue = self.server.armed_rescue()
        if rescue is None or self._ignores_rescue(fault):
            self.server.boots.append(Boot(now(), "disk"))
            return FromDisk()
        self.server.rescue = None
        self.server.boots.append(Boot(now(), "rescue", rescue.authorized_keys))
        return Rescue(rescue.authorized_keys)

    @staticmethod
    def _ignores_rescue(fault: BootFault | None) -> bool:
        return fault is not None and fault.effect == "ignore_rescue"

    def _went_off(self) -> None:
        """The guest switched itself off: the API notices a little later."""
        self.powered = False
        if self.server.status not in ("running", "starting"):
            return
        self.server.status = "stopping"
        self._noticing = asyncio.get_running_loop().create_task(self._notice_off())

    async def _notice_off(self) -> None:
        await asyncio.sleep(self._delays.soft_off(self.server.name))
        if self.server.status == "stopping":
            self.server.status = "off"

    def _stop_noticing(self) -> None:
        if self._noticing is not None:
            self._noticing.cancel()
            self._noticing = None
