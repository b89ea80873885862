# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that boot nothing: power states, boot decisions and disk files, without root and without a network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from lab.errors import LabError

from .backend import Backend
from .base import BootSource, Hardware, Machine, Rescue
from .disks import MachineWithDisks
from .store import Store, discard

_MACHINES = 65534


class DryMachine(MachineWithDisks):
    """Keeps the power state; a "guest" that obeys its power button at once."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        hardware: Hardware,
        firmware: Callable[[], BootSource],
        on_off: Callable[[], None],
    ) -> None:
        """A machine without disks; `create` puts them in."""
        super().__init__(store, folder / f"m{hardware.machine_id}.log", hardware, firmware, on_off)
        self._on = False
        self._timer: asyncio.TimerHandle | None = None

    async def power_on(self) -> None:
        """Ask the firmware and count as started."""
        if not self._on:
            self._on = True
            self._console.clear()
            self._boot()

    async def cut_power(self) -> None:
        self._off()

    async def press_power_button(self) -> None:
        """Off, by itself."""
        if self._on:
            self._off()
            self.on_off()

    async def reset(self) -> None:
        self._off()
        await self.power_on()

    async def request_reboot(self) -> None:
        """Boot again, when the time of the firmware has passed."""
        if not self._on or self.in_firmware:
            return
        seconds = self.firmware_delay()
        if seconds > 0:
            self.in_firmware = True
            self._timer = asyncio.get_running_loop().call_later(seconds, self._firmware_done)
        else:
            self._boot()

    async def ctrl_alt_del(self) -> None:
        await self.request_reboot()

    async def destroy(self) -> None:
        self._off()
        for disk in self._disks:
            disk.remove()

    @property
    def running(self) -> bool:
        return self._on

    def _off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on, self.in_firmware, self._timer = False, False, None

    def _firmware_done(self) -> None:
        self.in_firmware, self._timer = False, None
        self._boot()

    def _boot(self) -> None:
        source = self.firmware()
        what = f"rescue ({len(source.authorized_keys)} keys)" if isinstance(source, Rescue) else "disk"
        self._console.say(f"Booting from {what}; this machine is dry, nothing comes up.")


class DryBackend(Backend):
    """Addresses on loopback, where nothing answers."""

    kind = "dry"
    gateway = "127.0.0.1"
    controller = "127.0.0.1"

    def __init__(self, state_dir: Path, store: Store) -> None:
        """Use `DryBackend.open`."""
        self._folder = state_dir
        self._store = store

    @classmethod
    async def open(cls, state_dir: Path) -> DryBackend:
        """A place below ``state_dir``; disks that an earlier lab left there are removed."""
        folder = state_dir / "disks"
        await discard(folder)
        return cls(state_dir, await Store.open(folder, own_file_system=False))

    def address(self, index: int) -> str:
        if not 1 <= index <= _MACHINES:
            raise LabError(f"machine index {index} is not within 1..{_MACHINES}")
        return f"127.66.{index >> 8}.{index & 255}"

    def ipv6_network(self, index: int) -> str:
        """A documentation network: nothing is there."""
        return f"2001:db8:0:{index:x}::/64"

    def mac(self, index: int) -> str:
        return f"96:00:00:00:{index >> 8:02x}:{index & 255:02x}"

    def listen(self, port: int, host: str | None = None) -> socket.socket:
        """A socket on loopback: dry machines have no network, so only addresses of loopback can be listened on."""
        return socket.create_server((host or self.gateway, port))

    def machine(self, hardware: Hardware, firmware: Callable[[], BootSource], on_off: Callable[[], None]) -> Machine:
        return DryMachine(self._folder, self._store, hardware, firmware, on_off)

    async def isolate(self, machine: Machine, allow: tuple[str, ...] | None) -> None:
        """There is nothing to cut."""
        raise LabError(f"machine {machine.hardware.name} is dry: it sends nothing that could be held back")

    async def silence(self, machine: Machine, on: bool) -> None:
        """There is no SSH server."""
        del on
        raise LabError(f"machine {machine.hardware.name} is dry: it has no SSH server")

    async def worsen(self, machine: Machine, loss: int, kbytes: int) -> None:
        """There is no line."""
        del loss, kbytes
        raise LabError(f"machine {machine.hardware.name} is dry: it has no network")

    @property
    def disks(self) -> Path:
        return self._store.folder

    async def close(self) -> None:
        await self._store.close()
