# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of a lab: network, disks and images for its machines, of one kind.

Here is the kind whose machines boot nothing: power states, boot decisions and disk files, without root and a network.
"""

from __future__ import annotations

import abc
import asyncio
import os
import socket
from pathlib import Path

from lab.cache import Progress, quiet
from lab.errors import LabError
from lab.machines import KINDS

from .base import Firmware, Machine, OnOff, Rescue
from .disks import Hardware
from .store import Store, discard


class Backend(abc.ABC):
    """Network, disks and images for the machines of one lab, of one kind. Open one with `open_backend`."""

    kind: str
    gateway: str  # address at which machines reach the lab's services
    gateway6 = ""  # the same by IPv6, where there is any
    controller: str  # address at which machines reach the host
    share: Path | None = None  # rescues that boot from now on offer this folder as /root/.oldroot/nfs

    @abc.abstractmethod
    def address(self, index: int) -> str:
        """IPv4 address of the index-th machine, from 1."""

    @abc.abstractmethod
    def ipv6_network(self, index: int) -> str:
        """IPv6 network of the index-th machine; its first address is the machine's."""

    @abc.abstractmethod
    def mac(self, index: int) -> str:
        """MAC address of the index-th machine."""

    @abc.abstractmethod
    def listen(self, port: int, host: str | None = None) -> socket.socket:
        """A TCP socket listening inside the lab's network, on the gateway address unless ``host`` says otherwise."""

    @abc.abstractmethod
    def machine(self, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> Machine:
        """A new machine: no disk yet, power off."""

    @abc.abstractmethod
    async def isolate(self, machine: Machine, allow: tuple[str, ...] | None) -> None:
        """Let a machine send to these IPv4 addresses only (and ask for its own by DHCP); None: to everyone again.

        It stays so over reboots. Addresses that want to talk to the machine must be allowed, too.
        """

    @abc.abstractmethod
    async def silence(self, machine: Machine, on: bool) -> None:
        """Drop all packets from and to a machine's SSH server, so that it neither answers nor refuses; or no longer."""

    @abc.abstractmethod
    async def worsen(self, machine: Machine, loss: int, kbytes: int) -> None:
        """Lose this share of a machine's packets, in percent, and more above a rate in kilobytes a second; 0: none."""

    def adopt(self, pid: int) -> None:
        """A process beside the machines: where these really boot, it ends with the lab however that ends."""
        del pid

    @property
    @abc.abstractmethod
    def disks(self) -> Path:
        """The folder of the disks; images kept here are copied to machines without moving bytes."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Everything is gone afterwards: machines, processes, mounts, devices, namespaces. Safe to call twice."""


async def open_backend(kind: str, name: str, state_dir: Path, progress: Progress = quiet) -> Backend:
    """Open the lab ``name`` of a kind; what an earlier lab of that name left behind is removed first."""
    if kind not in KINDS:
        raise LabError(f"machine kind {kind!r} is not one of {', '.join(KINDS)}")
    state_dir.mkdir(parents=True, exist_ok=True)
    if kind == "dry":
        return await DryBackend.open(state_dir)
    if os.geteuid() != 0:
        raise LabError(f"machines of kind {kind} need root (for their network and disks); run as root or use kind dry")
    from .boot_backend import BootBackend

    return await BootBackend.open(kind, name, state_dir, progress)


def best_kind(progress: Progress = quiet) -> tuple[str, str]:
    """The kind of machine that suits this host, and why in one sentence."""
    from .host_commands import find
    from .qemu import kvm_works

    root = os.geteuid() == 0
    if not root:
        return "dry", "machines that boot need root for their network and disks; without it only power states are kept"
    if find("qemu-system-x86_64"):
        good, reason = kvm_works(progress)
        if good:
            return "qemu", reason
    else:
        reason = "QEMU is not installed"
    if find("systemd-nspawn"):
        return "nspawn", f"containers, because {reason}"
    if find("qemu-system-x86_64"):
        return "qemu", f"virtual machines without hardware help (slow), because {reason} and systemd-nspawn is missing"
    raise LabError("this host can run no machines; run: apt-get install systemd-container dnsmasq-base iproute2")


_MACHINES = 65534


class DryMachine(Machine):
    """Keeps the power state; a "guest" that obeys its power button at once."""

    def __init__(self, folder: Path, store: Store, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> None:
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

    def machine(self, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> Machine:
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
