# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The place of machines that really boot (needs root): kinds nspawn and qemu."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lab import images
from lab.cache import Progress
from lab.errors import PROGRAM, LabError

from . import host_commands, nspawn, qemu
from .backend import Backend
from .base import Firmware, Machine, OnOff
from .cgroup import CGroup, Watchdog
from .disk_watcher import DiskWatcher
from .disks import Hardware
from .guest_view import Views
from .host_commands import HostSettings
from .lab_network import BadLine, Network
from .leftovers import begin, clean_up, clean_up_dead_labs, label_of, store_folder
from .qemu import kvm_works
from .store import Store

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
