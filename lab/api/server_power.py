# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power control of a cloud server: its status follows the power, and a boot consumes its rescue."""

from __future__ import annotations

import asyncio

from lab import power_control
from lab.delays import Delays
from lab.faults import Faults
from lab.machines.base import BootSource, FromDisk, Rescue

from .resources import Boot, Server, now


class ServerPower(power_control.PowerControl):
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
            self.server.boots.append(Boot(now(), "disk"))
            return FromDisk()
        self.server.rescue = None
        self.server.boots.append(Boot(now(), "rescue", rescue.authorized_keys))
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
