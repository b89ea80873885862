# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulated APIs know of a machine: one small interface, several kinds behind it.

A machine has hardware that stays the same, disks that stay the same, and a power switch. What it boots is
not its own decision: at every boot (power on, or reboot from inside) it asks its firmware for the boot source,
exactly once, so that a one-shot such as an armed rescue is consumed by the boot itself.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lab.errors import LabError

Range = tuple[int, int | None]  # of a disk: start and length in bytes; without a length up to its end
WHOLE: Range = (0, None)


@dataclass(frozen=True)
class DiskSpec:
    """One disk; a serial, WWN or model that is left out is the kind's own (see `disks.py`)."""

    size_bytes: int
    kind: Literal["scsi", "sata", "nvme"] = "scsi"  # the one disk of a cloud machine is a scsi disk
    serial: str = ""
    wwn: str = ""  # sata, scsi: 0x and 16 hexadecimal digits (NAA); nvme: eui. and 16; see `Machine.disks`, too
    model: str = ""
    rotational: bool = False


@dataclass(frozen=True)
class Hardware:
    """What a machine consists of; only disks are ever added or replaced."""

    machine_id: int  # the API's server id; also the DMI serial
    name: str
    cores: int
    memory_mib: int
    disks: tuple[DiskSpec, ...]  # at least one; the firmware tries them in this order
    mac: str
    ipv4: str
    ipv6: str = ""  # its public network, of which the first address is the machine's
    public_ipv4: bool = True  # without: its IPv4 address reaches the metadata service alone
    architecture: str = "x86"
    manufacturer: str = "Hetzner"  # DMI; cloud-init takes this vendor for a cloud machine with a metadata service
    product: str = "vServer"
    uefi: bool = False
    swaps_letters: bool = False  # at every other boot the kernel names disks of the same kind in reverse order

    @property
    def disk_bytes(self) -> int:
        """Size of the first disk."""
        return self.disks[0].size_bytes


@dataclass(frozen=True)
class Rescue:
    """Boot the rescue system from RAM; only these keys, or the password, may log in as root."""

    authorized_keys: tuple[str, ...] = ()
    password: str | None = None
    host_keys: tuple[str, ...] = ()  # OpenSSH private keys (PEM) that its sshd shows; none: it makes its own


@dataclass(frozen=True)
class FromDisk:
    """Boot the system on the disk; nothing bootable means that nothing comes up."""


BootSource = Rescue | FromDisk


class Machine(abc.ABC):
    """One machine. All methods are coroutines of the lab's event loop and may be called in any power state."""

    def __init__(self, hardware: Hardware, firmware: Callable[[], BootSource], on_off: Callable[[], None]) -> None:
        """``firmware`` is asked once per boot; ``on_off`` is called when the guest switches itself off."""
        self.hardware = hardware
        self.firmware = firmware
        self.on_off = on_off
        #: Seconds that the firmware takes; asked before each boot. Zero where that time has passed already.
        self.firmware_delay: Callable[[], float] = lambda: 0.0
        #: Its places in private networks, asked for at each boot: network, range, MAC address, address.
        self.private: Callable[[], list[tuple[int, str, str, str]]] = list
        self.in_firmware = False
        self._first: tuple[int, ...] = ()

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

    def _with_disk(self, index: int, disk: DiskSpec) -> Hardware:
        """The hardware with another disk in the place ``index``, or a further one."""
        disks = self.hardware.disks
        return replace(self.hardware, disks=(*disks[:index], disk, *disks[index + 1 :]))

    @abc.abstractmethod
    async def create(self, image: Path | None) -> None:
        """Install the disks, empty; the raw image ``image`` goes onto the first one."""

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

    @abc.abstractmethod
    async def disk_digest(self, index: int, part: Range = WHOLE) -> str:
        """SHA-256 (hexadecimal) of all bytes of a disk, or of a range, as they are now; ``index`` as in `Hardware`."""

    @abc.abstractmethod
    async def disk_mark(self, index: int, part: Range = WHOLE) -> str:
        """Something that is the same as long as no byte changes, and is there sooner than the digest."""

    @abc.abstractmethod
    async def add_disk(self, disk: DiskSpec, image: Path | None) -> None:
        """Put a further disk in, empty or holding a raw image; a machine that is on has it from its next boot on."""

    @abc.abstractmethod
    async def replace_disk(self, index: int, disk: DiskSpec, image: Path | None) -> None:
        """Put another disk in the place of one, empty or holding a raw image; only while off."""

    @abc.abstractmethod
    async def copy_disk(self, target: Path) -> int:
        """Copy the first disk into the raw file ``target`` (sparse or reflinked); returns the bytes allocated."""

    @abc.abstractmethod
    async def write_disk(self, image: Path | None) -> None:
        """Replace the first disk's content by a raw image (a rebuild), or by zeros; only while off."""

    async def enter(self, script: str) -> tuple[int, str, str]:
        """Run a shell script inside the guest as root, without its network: exit status, output and errors."""
        del script
        raise LabError(f"machine {self.hardware.name}: only running machines of kind nspawn can be entered; use SSH")

    @abc.abstractmethod
    async def destroy(self) -> None:
        """Cut the power and remove everything the machine owns; safe to call twice."""

    @property
    @abc.abstractmethod
    def disks(self) -> tuple[DiskSpec, ...]:
        """The disks as its guests see them: nothing left out, and what this kind cannot show as asked made true."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """Whether the power is on (a guest that crashed or found nothing to boot still has power)."""

    @abc.abstractmethod
    def console(self) -> str:
        """What the machine printed on its console since the last power on (tail, for people and tests)."""
