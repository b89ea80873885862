# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines as systemd-nspawn containers: an init that really boots, from a rescue tree or from the written disk.

Kernel, modules and boot loader are not emulated (kind ``qemu`` does that); partition table, file systems, init,
SSH, cloud-init, reboot and power are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import bootable, devices, partitions
from .base import BootSource, Hardware, Rescue
from .cgroup import CGroup
from .loop import Loop
from .netns import NetNs
from .network import Network
from .powered import PoweredMachine
from .store import Store

_BOOT = Path(__file__).parent / "files" / "boot-container"
_STATUS_REBOOT = 133
_STATUS_OFF = 0
_SIG_POWEROFF = signal.SIGRTMIN + 4  # systemd(1): what its own tools ask of it
_SIG_CTRL_ALT_DEL = signal.SIGINT
_SIG_REBOOT = signal.SIGRTMIN + 5
PROGRAMS = ("systemd-nspawn", "ip", "nsenter", "unshare", "mount", "dnsmasq")


@dataclass(frozen=True)
class Lab:
    """What all machines of one lab share."""

    label: str
    folder: Path
    cgroup: CGroup
    network: Network
    store: Store
    watcher: devices.Watcher
    rescue_tree: Path


class NspawnMachine(PoweredMachine):
    """One container at a time, on a disk that stays."""

    def __init__(
        self, lab: Lab, hardware: Hardware, firmware: Callable[[], BootSource], on_off: Callable[[], None]
    ) -> None:
        """A machine without a disk; `create` puts it in."""
        super().__init__(lab.folder, lab.store, hardware, firmware, on_off)
        self._lab = lab
        self._cgroup: CGroup | None = None
        self._loop: Loop | None = None
        self._ns: NetNs | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def press_power_button(self) -> None:
        """Ask the guest's init to power off."""
        self._signal(_SIG_POWEROFF)

    async def request_reboot(self) -> None:
        """Ask the guest's init to reboot."""
        self._signal(_SIG_REBOOT)

    async def ctrl_alt_del(self) -> None:
        """Tell the guest's init what a keyboard would."""
        self._signal(_SIG_CTRL_ALT_DEL)

    async def copy_disk(self, target: Path) -> int:
        """Copy the first disk as it is now."""
        await self._flush()
        return await super().copy_disk(target)

    async def disk_digest(self, index: int) -> str:
        """Digest of a disk as it is now."""
        await self._flush()
        return await super().disk_digest(index)

    async def _flush(self) -> None:
        if self._loop:
            await asyncio.to_thread(self._loop.flush)

    # -- power -----------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        self._loop = await asyncio.to_thread(Loop, self._disks[0].file)
        self._lab.watcher.watch(self._loop, self._partitions_changed)

    async def _cut(self) -> None:
        """Stop, and see to it that the kernel does not write out what a real machine would have lost.

        Killing a container unmounts its file systems, which is as good as a shutdown for them. So the guest is made
        to stand still, its disk kept as it is at that moment, and what the unmounting writes is thrown away.
        """
        if self._cgroup and self._cgroup.populated:
            await asyncio.to_thread(self._cgroup.freeze)
            await asyncio.to_thread(self._disks[0].keep_moment)
        await self._stop()
        await asyncio.to_thread(self._disks[0].return_to_moment)

    async def _live(self, begun: asyncio.Event) -> None:
        """From power on to power off: one container after the other, the firmware asked before each."""
        try:
            while True:
                try:
                    status = await self._boot(begun)
                except Exception as error:  # noqa: BLE001 - a machine that does not come up still has power
                    self._console.say(f"The lab could not start this machine: {error}")
                    status = None
                begun.set()
                if status == _STATUS_OFF:
                    break
                if status != _STATUS_REBOOT:  # nothing to boot, or a crash: power without a system
                    self._console.say("System halted.")
                    await asyncio.Event().wait()
        finally:
            begun.set()
        await self._switched_off()

    async def _boot(self, begun: asyncio.Event) -> int | None:
        """One boot; returns the container's exit status, None when nothing was started."""
        await self._kill()
        assert self._loop is not None
        source = self.firmware()
        partitions.agree(self._loop, self.hardware.disk_bytes)
        if not isinstance(source, Rescue):
            reason = await asyncio.to_thread(bootable.why_not, self._loop.device)
            if reason:
                self._console.say(reason)
                return None
        self._ns = NetNs()
        await self._lab.network.attach(self._name, self.hardware.mac, self._ns)
        if isinstance(source, Rescue):
            await self._configure_address(self._ns)
        self._cgroup = self._lab.cgroup.child(self._name)
        environment = self._environment(source)
        with self._console.open() as console:
            self._process = await asyncio.create_subprocess_exec(
                "unshare", "--mount", "--propagation", "private", str(_BOOT),
                env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
        begun.set()
        return await self._process.wait()

    def _environment(self, source: BootSource) -> dict[str, str]:
        """The parameters of the boot script."""
        assert self._loop is not None
        assert self._ns is not None
        assert self._cgroup is not None
        values = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CGROUP": str(self._cgroup.path),
            "FOLDER": str(self._folder),
            "NAME": f"{self._lab.label}-{self._name}",
            "NETNS": self._ns.path,
            "LOOP": str(self._loop.device),
            "PARTITIONS": " ".join(f"{n}:{major}:{minor}" for n, (major, minor) in self._loop.partitions().items()),
            "MEMORY_MIB": str(self.hardware.memory_mib),
            "SERIAL": str(self.hardware.machine_id),
        }
        if isinstance(source, Rescue):
            keys = self._folder / "authorized_keys"
            keys.write_text("".join(f"{key.strip()}\n" for key in source.authorized_keys))
            values |= {"TREE": str(self._lab.rescue_tree), "KEYS": str(keys)}
        return values

    async def _configure_address(self, ns: NetNs) -> None:
        await ns.ip(
            "link set lo up",
            f"addr add {self.hardware.ipv4}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self._lab.network.gateway}",
        )

    async def _kill(self) -> None:
        """Nothing of the last boot is left: processes, cable, namespace, control groups."""
        if self._cgroup:
            self._cgroup.kill()
        if self._process:
            await self._process.wait()
        if self._cgroup:
            await self._cgroup.emptied()
            self._cgroup.remove()
            if self._loop:
                await self._loop.released()
        if self._ns:
            await self._lab.network.detach(self._name)
            self._ns.close()
        self._cgroup = self._process = self._ns = None

    async def _power_gone(self) -> None:
        if self._loop:
            self._lab.watcher.forget(self._loop)
            await asyncio.to_thread(self._loop.close)
            self._loop = None

    # -- inside ----------------------------------------------------------------------------------------------------

    def _init_pid(self) -> int | None:
        """The guest's process 1, as the host numbers it."""
        if self._process is None or self._process.returncode is not None:
            return None
        with contextlib.suppress(OSError):
            pid = self._process.pid
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                status = Path(f"/proc/{child}/status").read_text()
                if any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in status.splitlines()):
                    return int(child)
        return None

    def _signal(self, number: int) -> None:
        pid = self._init_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _partitions_changed(self) -> None:
        """The partition table or the kernel's idea of it changed."""
        if self._loop:
            partitions.agree(self._loop, self.hardware.disk_bytes)
        pid = self._init_pid()
        if pid is not None and self._loop:
            devices.mirror(Path(f"/proc/{pid}/root"), self._loop.partitions())
