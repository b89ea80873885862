# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of a lab: network, disks and images for its machines, of one kind.

`DryBackend` is the kind whose machines boot nothing: power states, boot decisions and disk files, without root and a
network. `BootBackend` is the place of machines that really boot (needs root): kinds nspawn and qemu.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import fcntl
import functools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lab import images
from lab.cache import Progress, quiet
from lab.errors import PROGRAM, LabError
from lab.machines import KINDS

from . import host_commands, nspawn, qemu
from .base import Firmware, Machine, OnOff, Rescue
from .cgroup import CGroup, Watchdog
from .disks import Hardware
from .guest_view import Views
from .host_commands import HostSettings, find
from .lab_network import BadLine, Network
from .leftovers import begin, clean_up, clean_up_dead_labs, label_of, store_folder
from .loop import DiskWatcher
from .qemu import kvm_works
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
    return await BootBackend.open(kind, name, state_dir, progress)


def best_kind(progress: Progress = quiet) -> tuple[str, str]:
    """The kind of machine that suits this host, and why in one sentence."""
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


MachineMaker = Callable[[Hardware, Firmware, OnOff], Machine]
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_NEEDED = 8192  # every init watches files with several; all guests count as one user


class BootBackend(Backend):
    """Network, disk store and images of one lab, and everything that was started in it."""

    def __init__(self, kind: str, label: str, state_dir: Path) -> None:
        """Use `BootBackend.open`."""
        self.kind = kind
        self.label = label
        self._state_dir = state_dir
        self._machines: list[Machine] = []
        self._resources = contextlib.AsyncExitStack()  # closed in the opposite order

    @classmethod
    async def open(cls, kind: str, name: str, state_dir: Path, progress: Progress) -> BootBackend:
        """Build everything; nothing stays when that fails."""
        host_commands.require(nspawn.PROGRAMS if kind == "nspawn" else qemu.PROGRAMS)
        state_dir = state_dir.resolve()
        label = label_of(name, state_dir)
        backend = cls(kind, label, state_dir)
        try:
            backend._resources.callback(_lock(state_dir, name).close)
            for dead in await clean_up_dead_labs():
                progress(f"removed what the killed lab {dead} had left")
            backend._resources.callback((await begin(label, state_dir)).close)
            backend._resources.push_async_callback(clean_up, state_dir, label)
            await backend._build(progress)
        except BaseException:
            await backend.close()
            raise
        return backend

    async def _build(self, progress: Progress) -> None:
        self._rescue = await asyncio.to_thread(images.ensure, "rescue", progress)
        _allow_many_inits(progress)
        closing = self._resources
        self._cgroup = CGroup.of_lab(self.label)
        closing.callback(self._cgroup.hold().close)
        closing.callback(Watchdog(self._cgroup).close)
        self._store = await Store.open(store_folder(self.label), own_file_system=True)
        self._watcher = DiskWatcher()
        closing.callback(self._watcher.close)
        self._network = await Network.open(self._state_dir, self._cgroup.child("services"))
        closing.push_async_callback(self._network.close)
        closing.push_async_callback(self._end_machines)
        self.gateway, self.controller = self._network.gateway, self._network.controller
        self.gateway6 = self._network.gateway6
        if self.kind == "nspawn":
            self._machine = await self._containers()
        else:
            self._machine = await self._virtual_machines(progress)

    async def _containers(self) -> MachineMaker:
        shared = nspawn.Lab(
            self.label, self._state_dir, self._cgroup, self._network, self._store, self._watcher, self._rescue.tree,
            await Views.open(self._state_dir, self.label), lambda: self.share,
        )  # fmt: skip
        return functools.partial(nspawn.NspawnMachine, shared)

    async def _virtual_machines(self, progress: Progress) -> MachineMaker:
        good, reason = await asyncio.to_thread(kvm_works, progress)
        progress(f"virtual machines {'with' if good else 'without'} KVM: {reason}")
        acceleration = "kvm" if good else "tcg"
        shared = qemu.Lab(
            self._state_dir, self._cgroup, self._network, self._store, self._rescue, acceleration, lambda: self.share
        )
        return functools.partial(qemu.QemuMachine, shared)

    def address(self, index: int) -> str:
        return self._network.address(index)

    def ipv6_network(self, index: int) -> str:
        return self._network.ipv6_network(index)

    def mac(self, index: int) -> str:
        return self._network.mac(index)

    def listen(self, port: int, host: str | None = None) -> socket.socket:
        """A listening socket inside the lab's network namespace."""
        return self._network.listen(port, host or self.gateway)

    @property
    def disks(self) -> Path:
        return self._store.folder

    def machine(self, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> Machine:
        machine = self._machine(hardware, firmware, on_off)
        self._machines.append(machine)
        return machine

    def adopt(self, pid: int) -> None:
        """Put a process among those that end with the lab's control group."""
        self._cgroup.child("services").add(pid)

    async def isolate(self, machine: Machine, allow: tuple[str, ...] | None) -> None:
        """Filter what comes out of the machine's cable."""
        await self._network.isolate(f"m{machine.hardware.machine_id}", allow)

    async def silence(self, machine: Machine, on: bool) -> None:
        """Filter what the bridge carries."""
        await self._network.silence(f"m{machine.hardware.machine_id}", on)

    async def worsen(self, machine: Machine, loss: int, kbytes: int) -> None:
        """Drop packets on the bridge."""
        await self._network.worsen(f"m{machine.hardware.machine_id}", BadLine(loss, kbytes))

    async def close(self) -> None:
        """Machines first, then network, devices, disks and control groups."""
        await self._resources.aclose()

    async def _end_machines(self) -> None:
        results = await asyncio.gather(*(machine.destroy() for machine in self._machines), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[0]


def _lock(state_dir: Path, name: str) -> TextIO:
    lock = (state_dir / "site.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise LabError(
            f"lab {name!r} is already open in another process ({state_dir}); close it or take another name"
        ) from error
    return lock


def inotify_instances() -> tuple[int, int]:
    """How many inotify instances a user of this host may have now, and how many the lab allows for its machines."""
    return int(_INOTIFY.read_text()), _INOTIFY_NEEDED


def _allow_many_inits(progress: Progress) -> None:
    present, _needed = inotify_instances()
    if present < _INOTIFY_NEEDED:
        HostSettings().change(_INOTIFY, str(_INOTIFY_NEEDED))
        progress(
            f"raised fs.inotify.max_user_instances from {present} to {_INOTIFY_NEEDED}, so that many machines can run "
            f"('{PROGRAM} purge' puts it back)"
        )
