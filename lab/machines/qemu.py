# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines in QEMU: kernel, initramfs, boot loader, udev and power button are real, with KVM or without.

The rescue is booted as over the network (kernel and initramfs handed to QEMU), everything else by the BIOS from
the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.images import Image

from . import credentials, qemu_command
from .base import BootSource, DiskSpec, Hardware, Rescue
from .cgroup import CGroup
from .host import LabError
from .network import Network
from .powered import PoweredMachine
from .qmp import Qmp
from .store import Store

PROGRAMS = ("qemu-system-x86_64", "ip", "nsenter", "mount", "dnsmasq")
_CRASH = re.compile(r"Oops:|double fault|general protection fault|Kernel panic")
_WATCHED = 120  # seconds of a boot in which a crash of the kernel is taken for QEMU's fault


@dataclass(frozen=True)
class Lab:
    """What all machines of one lab share."""

    folder: Path
    cgroup: CGroup
    network: Network
    store: Store
    rescue: Image
    acceleration: str  # kvm or tcg
    share: Callable[[], Path | None]  # the folder of images that rescues offer


class QemuMachine(PoweredMachine):
    """One QEMU process at a time, on disks that stay."""

    def __init__(
        self, lab: Lab, hardware: Hardware, firmware: Callable[[], BootSource], on_off: Callable[[], None]
    ) -> None:
        """A machine without disks; `create` puts them in."""
        super().__init__(lab.folder, lab.store, hardware, firmware, on_off)
        self._lab = lab
        self._boots = 0
        self._cgroup: CGroup | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._qmp: Qmp | None = None
        self._start_again = False

    @property
    def disks(self) -> tuple[DiskSpec, ...]:
        """The disks as guests see them."""
        return tuple(disk.spec() for disk in map(qemu_command.as_shown, self._identities))

    async def press_power_button(self) -> None:
        """ACPI power button."""
        self._start_again = False
        await self._press()

    async def request_reboot(self) -> None:
        """ACPI has no reboot: the power button, and power on again when the guest is off."""
        self._start_again = True
        await self._press()

    async def ctrl_alt_del(self) -> None:
        """Press the three keys."""
        await self._tell("send-key", keys=[{"type": "qcode", "data": key} for key in ("ctrl", "alt", "delete")])

    async def _press(self) -> None:
        await self._tell("system_powerdown")

    async def _tell(self, command: str, **arguments: Any) -> None:
        if self._qmp:
            with contextlib.suppress(LabError, ConnectionError, asyncio.TimeoutError):  # it was going off anyway
                await self._qmp.execute(command, **arguments)

    async def _prepare(self) -> None:
        self._start_again = False

    async def _live(self, begun: asyncio.Event) -> None:
        """From power on to power off: one QEMU after the other, the firmware asked before each."""
        try:
            while True:
                try:
                    await self._count()
                    reason = await self._boot(self.firmware(), begun)
                except Exception as error:  # noqa: BLE001 - a machine that does not come up still has power
                    self._console.say(f"The lab could not start this machine: {error}")
                    reason = "crash"
                begun.set()
                if reason == "guest-shutdown" and not self._start_again:
                    break
                self._start_again = False
                if reason not in ("guest-reset", "guest-shutdown"):
                    await asyncio.Event().wait()
        finally:
            begun.set()
        await self._switched_off()

    async def _boot(self, source: BootSource, begun: asyncio.Event) -> str:
        """One boot; returns why QEMU ended."""
        retries = 1 if self._lab.acceleration == "tcg" else 0
        self._boots += 1
        while True:
            started = asyncio.get_running_loop().time()
            await self._run(source)
            begun.set()
            assert self._qmp is not None
            crash = asyncio.create_task(self._crashed())
            end = asyncio.create_task(self._qmp.ended())
            try:
                done, _pending = await asyncio.wait([crash, end], return_when=asyncio.FIRST_COMPLETED)
                early = asyncio.get_running_loop().time() - started < _WATCHED
                crashed = crash in done or (early and _CRASH.search(self._console.text()))  # a crash resets the machine
                if not retries or (end in done and not crashed):
                    await end
                    return self._qmp.shutdown_reason or "crash"
            finally:
                crash.cancel()
                end.cancel()
            retries -= 1
            await self._kill()
            self._console.clear()
            self._console.say("The lab starts this machine once more: its kernel crashed while booting without KVM.")

    async def _crashed(self) -> None:
        """Returns when the kernel crashed while booting; never otherwise."""
        for _second in range(_WATCHED):
            await asyncio.sleep(1)
            if _CRASH.search(self._console.text()):
                return
        await asyncio.Event().wait()

    async def _run(self, source: BootSource) -> None:
        await self._kill()
        await self._lab.network.add_tap(self._name)
        self._cgroup = self._lab.cgroup.child(self._name)
        socket = self._folder / "qmp"
        socket.unlink(missing_ok=True)
        command = self._lab.network.command(*self._command(source, socket))
        with self._console.open() as console:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self._cgroup.add(self._process.pid)
        self._qmp = await Qmp.connect(socket, self._process)

    def _command(self, source: BootSource, qmp: Path) -> list[str]:
        swapped = self.hardware.swaps_letters and self._boots % 2 == 0  # counted from 1
        parts = qemu_command.Chassis(
            acceleration=self._lab.acceleration,
            console=self._console.file,
            qmp=qmp,
            tap=self._name,
            disks=tuple(zip(self._identities, (disk.file for disk in self._disks), strict=True)),
            variables=self._variables() if self.hardware.uefi else None,
            boot_order=self.boot_order,
        )
        rescue = None
        if isinstance(source, Rescue):
            files = self._lab.rescue.files
            given = credentials.write(self._folder / "credentials", credentials.of_rescue(source))
            rescue = qemu_command.RescueFiles(files["kernel"], files["initrd"], given, self._lab.share())
        return qemu_command.command(self.hardware, parts, swapped, rescue)

    def _variables(self) -> Path:
        """The memory of this machine's UEFI: its boot entries stay over power cuts."""
        file = self._folder / "uefi-variables.fd"
        if not file.exists():
            if not qemu_command.OVMF_CODE.exists():
                raise LabError("UEFI machines of kind qemu need a firmware; run: apt-get install ovmf")
            shutil.copy(qemu_command.OVMF_VARIABLES, file)
        return file

    async def _kill(self) -> None:
        """Nothing of the last boot is left: process, cable, control group."""
        if self._qmp:
            self._qmp.close()
        if self._cgroup:
            self._cgroup.kill()
        if self._process:
            await self._process.wait()
        if self._cgroup:
            await self._cgroup.emptied()
            self._cgroup.remove()
            await self._lab.network.detach(self._name)
        self._cgroup = self._process = self._qmp = None
