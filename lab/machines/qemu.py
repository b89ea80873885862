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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.images import Image

from .base import BootSource, Hardware, Rescue
from .cgroup import CGroup
from .host import LabError
from .network import Network
from .powered import PoweredMachine
from .qmp import Qmp
from .store import Store

PROGRAMS = ("qemu-system-x86_64", "ip", "nsenter", "mount", "dnsmasq")
_ACCELERATION = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # One emulated core boots faster than two; more than one only helps programs that use them.
    "tcg": ("-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"),
}
_RESCUE_ARGUMENTS = "console=tty1 console=ttyS0,115200n8 net.ifnames=0 mitigations=off panic=-1 quiet"
_DRIVE = "format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap"
_KEYS = "opt/io.systemd.credentials/ssh.authorized_keys.root"
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


class QemuMachine(PoweredMachine):
    """One QEMU process at a time, on a disk that stays."""

    def __init__(
        self, lab: Lab, hardware: Hardware, firmware: Callable[[], BootSource], on_off: Callable[[], None]
    ) -> None:
        """A machine without a disk; `create` puts it in."""
        super().__init__(lab.folder, lab.store, hardware, firmware, on_off)
        self._lab = lab
        self._cgroup: CGroup | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._qmp: Qmp | None = None
        self._start_again = False

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
        while True:
            await self._run(source)
            begun.set()
            assert self._qmp is not None
            crash = asyncio.create_task(self._crashed())
            end = asyncio.create_task(self._qmp.ended())
            done, _pending = await asyncio.wait([crash, end], return_when=asyncio.FIRST_COMPLETED)
            if end in done or not retries:
                crash.cancel()
                await end
                return self._qmp.shutdown_reason or "crash"
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
        hardware = self.hardware
        smbios = f"type=1,manufacturer=Hetzner,product=vServer,serial={hardware.machine_id}"
        command = [
            "qemu-system-x86_64", "-name", hardware.name, "-machine", "q35", *_ACCELERATION[self._lab.acceleration],
            "-smp", str(hardware.cores if self._lab.acceleration == "kvm" else 1), "-m", str(hardware.memory_mib),
            "-nodefaults", "-no-user-config", "-display", "none", "-smbios", smbios, "-action", "reboot=shutdown",
            "-chardev", f"file,id=serial,path={self._console.file},append=on", "-serial", "chardev:serial",
            "-qmp", f"unix:{qmp},server=on,wait=off",
            "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
            "-drive", f"if=none,id=disk,file={self._disks[0].file},{_DRIVE}",
            "-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=disk,bootindex=1",
            "-netdev", f"tap,id=net,ifname={self._name},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=net,mac={hardware.mac},romfile=",
        ]  # fmt: skip
        if isinstance(source, Rescue):
            keys = self._folder / "authorized_keys"
            keys.write_text("".join(f"{key.strip()}\n" for key in source.authorized_keys))
            files = self._lab.rescue.files
            command += ["-kernel", str(files["kernel"]), "-initrd", str(files["initrd"])]
            command += ["-append", _RESCUE_ARGUMENTS]
            if source.authorized_keys:
                command += ["-fw_cfg", f"name={_KEYS},file={keys}"]
        return command

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
