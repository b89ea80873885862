# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One emulated Robot account: its dedicated servers, its keys, and how they are found."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.api.cloud_project import Cloud
from lab.machines.disks import Hardware
from lab.power_control import DedicatedPower

from . import model
from .model import (
    Dedicated,
    DedicatedSpec,
    HostKeyStock,
    Key,
    SpecError,
    Template,
    VSwitch,
    make_host_keys,
    make_public_host_keys,
)

log = logging.getLogger(__name__)

USER = "#ws+lab"
#: DMI of a dedicated server; cloud-init takes the vendor Hetzner for a cloud server.
MANUFACTURER = "Lab Bare Metal"
_PRESS_SECONDS = 2.0


@dataclass(frozen=True)
class RobotSettings:
    """The settings of the Robot of one lab."""

    user: str = USER
    #: of this user; without one the lab makes one up
    password: str = field(default="", repr=False)
    rescue_lifetime: float = 3600.0
    #: How long a change of a firewall or of a vSwitch is in process.
    process_seconds: float = 1.0
    clock: Callable[[], float] = time.time


@dataclass
class Account:
    """Everything the webservice user can see. Lives in the lab's event loop beside the cloud project."""

    cloud: Cloud
    settings: RobotSettings = field(default_factory=RobotSettings)
    #: Makes the folder that rescues mount to install from; asked when the first dedicated server is built.
    share: Callable[[], Path] | None = None
    password: str = field(init=False)
    servers: dict[int, Dedicated] = field(default_factory=dict)
    power_control: dict[int, DedicatedPower] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    templates: dict[int, Template] = field(default_factory=dict)
    vswitches: dict[int, VSwitch] = field(default_factory=dict)
    host_keys: HostKeyStock = field(init=False)
    _rotated: bool = False
    _presses: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.password = self.settings.password or secrets.token_urlsafe(24)
        # nothing of a dry machine speaks SSH
        self.host_keys = HostKeyStock(make_public_host_keys if self.cloud.backend.kind == "dry" else make_host_keys)

    @property
    def now(self) -> float:
        return self.settings.clock()

    async def close(self) -> None:
        for task in self._presses:
            task.cancel()
        await asyncio.gather(*self._presses, return_exceptions=True)
        await self.host_keys.close()
        await asyncio.gather(
            *(power_control.destroy() for power_control in self.power_control.values()), return_exceptions=True
        )

    async def add(self, entries: Any) -> list[Dedicated]:
        """Build the servers of a description and switch them on; all of them, or none and SpecError."""
        described = model.parse(entries)
        if described and self.share is not None and self.cloud.backend.share is None:
            self.cloud.backend.share = await asyncio.to_thread(self.share)
        # No await between the choice of numbers and their use: others may be adding servers too.
        wanted = model.numbered(described, self.servers)
        images = [self._image(number, spec) for number, spec in wanted]
        added = [self._place(number, spec) for number, spec in wanted]
        self.host_keys.fill(len(self.servers))
        try:
            await asyncio.gather(*(self._install(server, image) for server, image in zip(added, images, strict=True)))
        except BaseException:
            await asyncio.gather(*(self.remove(server) for server in added), return_exceptions=True)
            raise
        return added

    async def remove(self, server: Dedicated) -> None:
        await self.power_control[server.number].destroy()
        del self.servers[server.number], self.power_control[server.number]
        self.cloud.occupied.pop(server.index, None)
        for vswitch in self.vswitches.values():
            vswitch.members.pop(server.number, None)
        for other in self.servers.values():
            other.routed = {ip: None if to == server.number else to for ip, to in other.routed.items()}

    def named(self, text: str) -> Dedicated | None:
        """The server with this number, main address or IPv6 network, or None."""
        for server in self.servers.values():
            if text in (str(server.number), server.ipv4, server.ipv6_net):
                return server
        return None

    def ordered(self) -> list[Dedicated]:
        """All servers by number."""
        return [self.servers[number] for number in sorted(self.servers)]

    async def press(self, server: Dedicated, kind: str) -> None:
        """Press a button of a server; returns when it is pressed, or after two seconds while it goes on."""
        task = asyncio.get_running_loop().create_task(self._press(server, kind))
        self._presses.add(task)
        task.add_done_callback(self._presses.discard)
        await asyncio.wait({task}, timeout=_PRESS_SECONDS)

    async def hang(self) -> None:
        """Let systems hang that the script of faults names."""
        await asyncio.gather(*(power_control.hang() for power_control in self.power_control.values()))

    def login(self, user: str, password: str) -> bool:
        """Whether these are the credentials of the account at present."""
        good = secrets.compare_digest(user.encode(), self.settings.user.encode())
        return secrets.compare_digest(password.encode(), self.password.encode()) and good and not self._rotated

    def rotate_password(self) -> None:
        """Act as if the password of the webservice user was changed to one that no client of the lab knows."""
        self._rotated = True

    def restore_password(self) -> None:
        """The first password is good again."""
        self._rotated = False

    async def _press(self, server: Dedicated, kind: str) -> None:
        try:
            await self.power_control[server.number].press(kind)
        except Exception:
            # Robot only says that the button was pressed; what came of it is seen on the machine.
            log.exception("server %d: %s failed", server.number, kind)

    def _image(self, number: int, spec: DedicatedSpec) -> Path | None:
        """The image for the first disk; SpecError when it is not there or too large."""
        if spec.image is None:
            return None
        path = self.cloud.system_file if spec.image == "debian" else Path(spec.image)
        if path is None:
            return None  # dry machines boot nothing, their lab has no image
        if not path.is_file():
            raise SpecError(f"dedicated machine {number}: image '{path}' is no file; give 'debian' or a raw image")
        size, room = path.stat().st_size, spec.disks[0].size
        if size > room:
            raise SpecError(f"dedicated machine {number}: image '{path}' has {size} bytes, the first disk {room} bytes")
        return path

    def _place(self, number: int, spec: DedicatedSpec) -> Dedicated:
        """Give a server its place in the network and its machine; there are no disks in it yet."""
        index, backend = self.cloud.free_index(), self.cloud.backend
        net = f"2001:db8:{index >> 8:x}:{index & 255:x}::"
        server = Dedicated(number, spec.name, index, spec, backend.address(index), net, backend.mac(index))
        server.routed = dict.fromkeys(spec.failover, number)
        hardware = Hardware(
            machine_id=number,
            name=spec.name or f"server-{number}",
            cores=spec.cores,
            memory_mib=spec.memory_mib,
            disks=spec.disk_specs(number),
            mac=server.mac,
            ipv4=server.ipv4,
            manufacturer=MANUFACTURER,
            product=spec.product,
            uefi=spec.uefi,
            swaps_letters=spec.swaps_letters,
        )
        power_control = DedicatedPower(server, self.cloud.delays, self.cloud.faults, self.settings.clock)
        power_control.install(lambda firmware, on_off: backend.machine(hardware, firmware, on_off))
        self.cloud.occupied[index] = power_control
        self.servers[number], self.power_control[number] = server, power_control
        return server

    async def _install(self, server: Dedicated, image: Path | None) -> None:
        power_control = self.power_control[server.number]
        await power_control.machine.create(image)
        if server.spec.powered:
            await power_control.begin()
