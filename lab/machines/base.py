# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulated APIs know of a machine: one small interface, several kinds behind it.

A machine has hardware that stays the same, disks that stay the same, and a power switch. What it boots is
not its own decision: at every boot (power on, or reboot from inside) it asks its firmware for the boot source,
exactly once, so that a one-shot such as an armed rescue is consumed by the boot itself.

`PoweredMachine` is what every machine that really boots has: a power switch, credentials for its rescue.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from lab.errors import LabError

from .disks import WHOLE, Console, Disk, DiskSpec, Hardware, Identity, Range, identities
from .store import Store


@dataclass(frozen=True)
class Rescue:
    """Boot the rescue system from RAM; only these keys, or the password, may log in as root."""

    authorized_keys: tuple[str, ...] = ()
    password: str | None = None
    #: type (ed25519, ecdsa or rsa) and OpenSSH private key of each that its sshd shows; none: it makes its own
    host_keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FromDisk:
    """Boot the system on the disk; nothing bootable means that nothing comes up."""


BootSource = Rescue | FromDisk
#: Asked once for each boot.
Firmware = Callable[[], BootSource]
#: Called when the guest switches itself off.
OnOff = Callable[[], None]


class Machine(abc.ABC):
    """One machine, with what every kind does with its disks and its console; a kind adds how its guest lives.

    All methods are coroutines of the lab's event loop and may be called in any power state.
    """

    def __init__(self, store: Store, console: Path, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> None:
        """A machine without disks, which prints into ``console``; `create` puts the disks in."""
        self.hardware = hardware
        self.firmware = firmware
        self.on_off = on_off
        #: Seconds that the firmware takes; asked before each boot. Zero where that time has passed already.
        self.firmware_delay: Callable[[], float] = lambda: 0.0
        #: Its places in private networks, asked for at each boot: network, range, MAC address, address.
        self.private: Callable[[], list[tuple[int, str, str, str]]] = list
        self.in_firmware = False
        self._first: tuple[int, ...] = ()
        self._store = store
        self._identities = identities(hardware)
        self._disks = [self._disk(index, disk) for index, disk in enumerate(self._identities)]
        self._console = Console(console)
        self._switch = asyncio.Lock()  # one change of power or hardware at a time

    async def _wait_for_firmware(self) -> None:
        """Let the time of the firmware pass: there is power, and nothing runs."""
        seconds = self.firmware_delay()
        if seconds > 0:
            self.in_firmware = True
            try:
                await asyncio.sleep(seconds)
            finally:
                self.in_firmware = False

    @property
    def boot_order(self) -> tuple[int, ...]:
        """The disks, numbered as in `Hardware.disks`, in the order in which the firmware tries them."""
        return self._first + tuple(disk for disk in range(len(self.hardware.disks)) if disk not in self._first)

    def boot_first(self, disks: tuple[int, ...]) -> None:
        """Let the firmware try these disks before all others, from the next boot on; none: in their own order."""
        count = len(self.hardware.disks)
        if len(set(disks)) != len(disks) or not all(0 <= disk < count for disk in disks):
            raise LabError(
                f"machine {self.hardware.name}: boot order {list(disks)} is not of different disks among 0..{count - 1}"
            )
        self._first = disks

    @abc.abstractmethod
    async def power_on(self) -> None:
        """Press the power button of a machine that is off; returns when the guest has begun to start."""

    @abc.abstractmethod
    async def cut_power(self) -> None:
        """Pull the plug: everything in RAM is gone; returns when the machine is off."""

    @abc.abstractmethod
    async def press_power_button(self) -> None:
        """ACPI power button: a guest that listens shuts down by itself (then ``on_off``), another one goes on."""

    @abc.abstractmethod
    async def reset(self) -> None:
        """Hard reset: as cutting the power and switching on again, without an off in between."""

    @abc.abstractmethod
    async def request_reboot(self) -> None:
        """ACPI reboot: as the power button, but the guest starts again and asks its firmware again."""

    @abc.abstractmethod
    async def ctrl_alt_del(self) -> None:
        """The three keys on the keyboard: a guest whose init listens reboots and asks its firmware again."""

    async def enter(self, script: str) -> tuple[int, str, str]:
        """Run a shell script inside the guest as root, without its network: exit status, output and errors."""
        del script
        raise LabError(f"machine {self.hardware.name}: only running machines of kind nspawn can be entered; use SSH")

    @abc.abstractmethod
    async def destroy(self) -> None:
        """Cut the power and remove everything the machine owns; safe to call twice."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """Whether the power is on (a guest that crashed or found nothing to boot still has power)."""

    def console(self) -> str:
        """What the machine printed on its console since the last power on (tail, for people and tests)."""
        return self._console.text()

    @property
    def disks(self) -> tuple[DiskSpec, ...]:
        """The disks as its guests see them: nothing left out, and what this kind cannot show as asked made true."""
        return tuple(disk.spec() for disk in self._identities)

    async def create(self, image: Path | None) -> None:
        """Install the disks, empty; the raw image ``image`` goes onto the first one."""
        for disk in self._disks:
            await disk.install(image if disk is self._disks[0] else None)

    async def copy_disk(self, target: Path) -> int:
        """Copy the first disk into the raw file ``target`` (sparse or reflinked); returns the bytes allocated."""
        await self._flush()
        return await asyncio.to_thread(self._disks[0].copy_to, target)

    async def write_disk(self, image: Path | None) -> None:
        """Replace the first disk's content by a raw image (a rebuild), or by zeros; only while off."""
        if self.running:
            raise LabError(f"machine {self.hardware.name} is on; its disk can only be replaced while it is off")
        await self._disks[0].install(image)

    async def disk_digest(self, index: int, part: Range = WHOLE) -> str:
        """SHA-256 (hexadecimal) of all bytes of a disk, or of a range, as they are now; ``index`` as in `Hardware`."""
        await self._flush()
        return await asyncio.to_thread(self._disks[index].digest, part)

    async def disk_mark(self, index: int, part: Range = WHOLE) -> str:
        """Something that is the same as long as no byte changes, and is there sooner than the digest."""
        await self._flush()
        return await asyncio.to_thread(self._disks[index].mark, part)

    async def add_disk(self, disk: DiskSpec, image: Path | None) -> None:
        """Put a further disk in, empty or holding a raw image; a machine that is on has it from its next boot on."""
        async with self._switch:
            await self._put_in(len(self._disks), disk, image)

    async def replace_disk(self, index: int, disk: DiskSpec, image: Path | None) -> None:
        """Put another disk in the place of one, empty or holding a raw image; only while off."""
        async with self._switch:
            if self.running:
                raise LabError(f"machine {self.hardware.name} is on; its disks can only be replaced while it is off")
            await self._put_in(index, disk, image)

    async def _flush(self) -> None:  # noqa: B027 - most kinds need nothing
        """Bring what the guest has written into the files of its disks."""

    def _disk(self, index: int, identity: Identity) -> Disk:
        return Disk(self._store, f"m{self.hardware.machine_id}-{index}", identity.size_bytes)

    async def _put_in(self, index: int, disk: DiskSpec, image: Path | None) -> None:
        disks = self.hardware.disks
        hardware = replace(self.hardware, disks=(*disks[:index], disk, *disks[index + 1 :]))
        found = identities(hardware)
        new = self._disk(index, found[index])
        await new.install(image)
        self.hardware, self._disks[index:] = hardware, [new, *self._disks[index + 1 :]]
        self._identities = found


def rescue_credentials(rescue: Rescue) -> dict[str, str]:
    """Name → content of the credentials of one boot."""
    found = {"ssh.authorized_keys.root": "".join(f"{key.strip()}\n" for key in rescue.authorized_keys)}
    if rescue.password is not None:
        found["lab.root_password"] = rescue.password
    found |= {f"lab.ssh_host_key.{kind}": key for kind, key in rescue.host_keys}
    return {name: content for name, content in found.items() if content}


def write_credentials(folder: Path, credentials: dict[str, str]) -> dict[str, Path]:
    """Leave credentials in a folder that only we can read; what an earlier boot had is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    files = {}
    for name, content in credentials.items():
        files[name] = folder / name
        fd = os.open(files[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(content)
    return files


class End(Enum):
    """How one boot ended."""

    OFF = "the guest switched itself off"
    AGAIN = "the guest reboots"
    CRASHED = "the guest ended otherwise"
    NOTHING = "nothing was started"


class PoweredMachine(Machine):
    """Power on, off and cut; a kind says how its guest runs (`_boot`) and how it is killed (`_kill`)."""

    def __init__(self, folder: Path, store: Store, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> None:
        """A machine without disks in the lab's ``folder``; `create` puts them in."""
        self._name = f"m{hardware.machine_id}"
        self._folder = folder / "machines" / self._name
        self._folder.mkdir(parents=True, exist_ok=True)
        super().__init__(store, self._folder / "console.log", hardware, firmware, on_off)
        self._life: asyncio.Task[None] | None = None

    @abc.abstractmethod
    async def _boot(self, begun: asyncio.Event) -> End:
        """One boot, from asking the firmware to its end; ``begun`` is set when the guest has begun to start."""

    @abc.abstractmethod
    async def _kill(self) -> None:
        """End what is left of the guest and release what it used."""

    async def _prepare(self) -> None:
        """What is to be done before every power on."""

    async def _power_gone(self) -> None:
        """What is to be done after every power off."""

    async def _halted(self, end: End) -> None:
        """There is power and no guest: nothing happens until the power is cut."""
        del end
        await asyncio.Event().wait()

    async def _live(self, begun: asyncio.Event) -> None:
        """From power on to power off: one guest after the other; ``begun`` is also set when none can start."""
        try:
            while True:
                try:
                    end = await self._boot(begun)
                except Exception as error:  # noqa: BLE001 - a machine that does not come up still has power
                    self._console.say(f"The lab could not start this machine: {error}")
                    end = End.NOTHING
                begun.set()
                if end is End.OFF:
                    break
                if end is not End.AGAIN:
                    await self._halted(end)
        finally:
            begun.set()
        await self._switched_off()

    async def _cut(self) -> None:
        """Pull the plug."""
        await self._stop()

    @property
    def running(self) -> bool:
        return self._life is not None

    async def power_on(self) -> None:
        """Start; returns when the guest has begun to start, or when it is clear that nothing boots."""
        async with self._switch:
            if self._life is None:
                await self._start()

    async def cut_power(self) -> None:
        """End the guest at once; what it had not written to its disk is lost."""
        async with self._switch:
            await self._cut()

    async def reset(self) -> None:
        """Cut and start again, so that the firmware is asked again."""
        async with self._switch:
            await self._cut()
            await self._start()

    async def destroy(self) -> None:
        async with self._switch:
            await self._stop()
        for disk in self._disks:
            disk.remove()

    async def _start(self) -> None:
        self._console.clear()
        await self._prepare()
        begun = asyncio.Event()
        self._life = asyncio.create_task(self._live(begun), name=f"life of {self._name}")
        await begun.wait()

    async def _stop(self) -> None:
        life, self._life = self._life, None
        if life is None:
            return
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        await self._kill()
        await self._power_gone()

    async def _switched_off(self) -> None:
        """The guest switched itself off: clean up, unless the power switch was used meanwhile."""
        async with self._switch:
            if self._life is asyncio.current_task():
                self._life = None
                await self._kill()
                await self._power_gone()
                self.on_off()
