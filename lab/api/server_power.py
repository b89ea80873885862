# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power and rescue of cloud servers: the switch behind a machine, and the actions that use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from lab import power_control
from lab.delays import Delays
from lab.faults import Faults
from lab.machines.base import BootSource, FromDisk, Rescue

from .actions import ActionFailedError, Job
from .api_errors import invalid_input
from .cloud_project import Cloud, check_unlocked, refuse_if
from .resources import Action, ArmedRescue, Boot, Server, now
from .schemas import EnableRescue


class ServerPower(power_control.PowerControl):
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


class Power:
    """All actions on a server that need its power switch or its boot order."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def settle(self, server: Server) -> None:
        """Set the status to running or off, by the power."""
        server.status = "running" if self.cloud.power_control[server.id].powered else "off"

    def power_on(self, server: Server) -> Action:
        """Switch on; without effect on a running server."""
        if self.cloud.power_control[server.id].powered:
            return self._start(server, "start_server", Job())
        return self.switch_on(server)

    def power_off(self, server: Server) -> Action:
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            if power_control.powered:
                server.status = "stopping"
            await power_control.cut_power()

        return self._settled(server, "stop_server", work)

    def reset(self, server: Server) -> Action:
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            server.status = "starting"
            await power_control.reset()

        return self._settled(server, "reset_server", work)

    def shutdown(self, server: Server) -> Action:
        """Press the power button; success only means that it was pressed."""
        return self._start(server, "shutdown_server", Job(self.cloud.power_control[server.id].press_power_button))

    def reboot(self, server: Server) -> Action:
        """Ask the guest to reboot; a guest that ignores it goes on."""
        return self._start(server, "reboot_server", Job(self.cloud.power_control[server.id].request_reboot))

    def enable_rescue(self, server: Server, body: EnableRescue) -> Action:
        """Arm the rescue for the next boot; nothing reboots."""
        check_unlocked(server)
        missing = [key for key in body.ssh_keys or () if key not in self.cloud.ssh_keys]
        refuse_if(bool(missing), invalid_input({"ssh_keys": [f"SSH key '{key}' not found" for key in missing]}))
        keys = tuple(self.cloud.ssh_keys[key].public_key for key in body.ssh_keys or ())
        lifetime = timedelta(seconds=self.cloud.settings.rescue_lifetime)

        def done() -> None:
            server.rescue = ArmedRescue(keys, now() + lifetime)

        return self._start(server, "enable_rescue", Job(done=done))

    def disable_rescue(self, server: Server) -> Action:
        return self._start(server, "disable_rescue", Job(done=partial(setattr, server, "rescue", None)))

    def reset_password(self, server: Server) -> Action:
        """Needs the QEMU guest agent, which no guest of the lab runs: accepted, then failing, as without an agent."""

        async def work() -> None:
            raise ActionFailedError("action_failed", "the guest agent does not answer")

        return self._start(server, "reset_password", Job(work))

    def switch_on(self, server: Server, after: Action | None = None) -> Action:
        """Switch on, as soon as the action ``after`` is through."""
        power_control = self.cloud.power_control[server.id]

        async def work() -> None:
            server.status = "starting"
            await power_control.switch_on()

        return self._settled(server, "start_server", work, after)

    def _settled(
        self, server: Server, command: str, work: Callable[[], Awaitable[None]], after: Action | None = None
    ) -> Action:
        """An action at whose end the status follows from the power."""
        settle = partial(self.settle, server)
        return self._start(server, command, Job(work, settle, settle), after)

    def _start(self, server: Server, command: str, job: Job, after: Action | None = None) -> Action:
        """Start an action of a server that no other one holds, except for the one ``after`` which it comes."""
        if after is None:
            check_unlocked(server)
        return self.cloud.engine.start(command, server.name, [("server", server.id)], job, server, after)
