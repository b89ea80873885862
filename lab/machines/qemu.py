# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines in QEMU: kernel, initramfs, boot loader, udev and power button are real, with KVM or without.

The rescue is booted as over the network (kernel and initramfs handed to QEMU), everything else by the BIOS from
the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import cache, images
from lab.cache import Progress
from lab.errors import LabError
from lab.images import Image

from .base import BootSource, End, Firmware, OnOff, PoweredMachine, Rescue, rescue_credentials, write_credentials
from .cgroup import CGroup
from .disks import DiskSpec, Hardware, Identity
from .lab_network import Network
from .store import Store

ACCELERATION = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    # One emulated core boots faster than two; more than one only helps programs that use them.
    "tcg": ("-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"),
}
_RESCUE_ARGUMENTS = "console=tty1 console=ttyS0,115200n8 net.ifnames=0 mitigations=off panic=-1 quiet"
_DRIVE = "format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap"
_CREDENTIAL = "opt/io.systemd.credentials/"  # in fw_cfg; systemd reads them before it starts anything
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_NVME_MODEL = "QEMU NVMe Ctrl"
_SHARE = "nfs.lab:/nfs"  # what the share is called in a rescue (lab/images/files/rescue), as over NFS
_SLOTS = {"scsi": 0x08, "nvme": 0x10}  # PCI addresses where the controllers of a kind begin
#: what the console shows when a kernel crashed; without KVM that is mostly the emulator's fault
CRASH = re.compile(r"Oops:|double fault|general protection fault|Kernel panic")
OVMF = Path("/usr/share/OVMF")
OVMF_CODE, OVMF_VARIABLES = OVMF / "OVMF_CODE_4M.fd", OVMF / "OVMF_VARS_4M.fd"


@dataclass(frozen=True)
class RescueFiles:
    """What a rescue is booted from, and what it is given."""

    kernel: Path
    initrd: Path
    credentials: dict[str, Path]
    share: Path | None


@dataclass(frozen=True)
class Parts:
    """Where the parts of one machine are on the host."""

    acceleration: str  # kvm or tcg
    console: Path
    qmp: Path
    tap: str
    disks: tuple[tuple[Identity, Path], ...]
    variables: Path | None  # of its UEFI; None: legacy
    boot_order: tuple[int, ...] = ()  # the disks that the firmware tries first


def as_shown(disk: Identity) -> Identity:
    """A disk as its guests see it: QEMU's NVMe disks have one model, and kernels distrust their EUI."""
    if disk.kind != "nvme":
        return disk
    wwn = f"nvme.1b36-{disk.serial.encode().hex()}-{_NVME_MODEL.encode().hex()}-00000001"
    return replace(disk, model=_NVME_MODEL, wwn=wwn)


def command(hardware: Hardware, parts: Parts, swapped: bool, rescue: RescueFiles | None) -> list[str]:
    """The command line; ``swapped``: the disks of each kind are found in reverse order."""
    smbios = {"manufacturer": hardware.manufacturer, "product": hardware.product, "serial": str(hardware.machine_id)}
    fields = ",".join(f"{key}={value.replace(',', ',,')}" for key, value in smbios.items())
    line = [
        "qemu-system-x86_64", "-name", hardware.name.replace(",", ",,"), "-machine", "q35",
        *ACCELERATION[parts.acceleration],
        "-smp", str(hardware.cores if parts.acceleration == "kvm" else 1), "-m", str(hardware.memory_mib),
        "-nodefaults", "-no-user-config", "-display", "none", "-action", "reboot=shutdown",
        "-smbios", f"type=1,{fields}", "-smbios", f"type=2,{fields}",  # the system and its board
        "-chardev", f"file,id=serial,path={parts.console},append=on", "-serial", "chardev:serial",
        "-qmp", f"unix:{parts.qmp},server=on,wait=off",
        "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
        "-netdev", f"tap,id=net,ifname={parts.tap},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=net,mac={hardware.mac},romfile=",
    ]  # fmt: skip
    if parts.variables:
        line += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={OVMF_CODE}"]
        line += ["-drive", f"if=pflash,unit=1,format=raw,file={parts.variables}"]
    line += _disks(parts.disks, parts.boot_order, swapped)
    if rescue:
        line += ["-kernel", str(rescue.kernel), "-initrd", str(rescue.initrd), "-append", _RESCUE_ARGUMENTS]
        for name, file in rescue.credentials.items():
            line += ["-fw_cfg", f"name={_CREDENTIAL}{name},file={file}"]
        if rescue.share:
            line += ["-fsdev", f"local,id=share,path={rescue.share},security_model=none,readonly=on"]
            line += ["-device", f"virtio-9p-pci,fsdev=share,mount_tag={_SHARE}"]
    return line


def _disks(disks: tuple[tuple[Identity, Path], ...], boot_order: tuple[int, ...], swapped: bool) -> list[str]:
    counts = {kind: sum(disk.kind == kind for disk, _file in disks) for kind in ("scsi", "sata", "nvme")}
    order = (*boot_order, *(index for index in range(len(disks)) if index not in boot_order))
    line = ["-device", f"virtio-scsi-pci,id=scsi,addr={_SLOTS['scsi']:#x}"] if counts["scsi"] else []
    for index, (disk, file) in enumerate(disks):
        place = counts[disk.kind] - 1 - disk.place if swapped else disk.place
        line += ["-drive", f"if=none,id=disk{index},file={file},{_DRIVE}"]
        line += _device(disk, place, f"drive=disk{index},bootindex={order.index(index) + 1}")
    return line


def _device(disk: Identity, place: int, drive: str) -> list[str]:
    """The device of a disk; kernels find them in the order of their places."""
    if disk.kind == "nvme":
        controller = f"nvme,id=nvme{disk.place},serial={disk.serial},addr={_SLOTS['nvme'] + place:#x}"
        return ["-device", controller, "-device", f"nvme-ns,bus=nvme{disk.place},{drive},uuid={_NO_UUID}"]
    options = f"serial={disk.serial},rotation_rate={7200 if disk.rotational else 1}"
    if disk.wwn:
        options += f",wwn={disk.wwn}"
    if disk.kind == "sata":
        return ["-device", f"ide-hd,bus=ide.{place},{drive},{options},model={disk.model}"]
    return ["-device", f"scsi-hd,bus=scsi.0,scsi-id={place},{drive},{options},product={disk.model}"]


_KVM_TIME = 60  # seconds; with working hardware help the first line is there within one on an idle host
_MARK = b"Linux version"
_QMP_SECONDS = 180  # seconds until QEMU must have answered
PROGRAMS = ("qemu-system-x86_64", "ip", "nsenter", "mount", "dnsmasq")
_WATCHED = 120  # seconds of a boot in which a crash of the kernel is taken for QEMU's fault


def kvm_works(progress: Progress) -> tuple[bool, str]:
    """(whether KVM boots the rescue kernel here, why); the answer is kept for this host's kernel and QEMU."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False, "there is no usable /dev/kvm"
    known = kvm_known()
    if known is not None:
        return known
    progress("probing whether KVM really boots a guest")
    good, reason = _probe(images.ensure("rescue", progress).files["kernel"])
    file = _kvm_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"for": _fingerprint(), "works": good, "reason": reason}))
    return good, reason


def kvm_known() -> tuple[bool, str] | None:
    """What `kvm_works` found earlier with this host's kernel and QEMU; None when it was not asked yet."""
    try:
        known = json.loads(_kvm_file().read_text())
        return (known["works"], known["reason"]) if known["for"] == _fingerprint() else None
    except (OSError, ValueError, KeyError):
        return None


def _kvm_file() -> Path:
    return cache.root() / "kvm.json"


def _fingerprint() -> list[str]:
    return [platform.release(), Path("/proc/sys/kernel/random/boot_id").read_text().strip(), _version()]


def _version() -> str:
    done = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _probe(kernel: Path) -> tuple[bool, str]:
    command = [
        "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "256", "-machine", "q35", "-nodefaults",
        "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    seen, deadline = b"", time.monotonic() + _KVM_TIME
    try:
        while time.monotonic() < deadline and _MARK not in seen:
            seen += process.stdout.read() or b""
            if process.poll() is not None:
                break
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    if _MARK in seen:
        return True, "KVM boots a guest here"
    words = seen.decode(errors="replace").strip().splitlines()
    return (
        False,
        f"/dev/kvm is there but boots no guest ({words[0][:120] if words else f'no kernel line within {_KVM_TIME} s'})",
    )


class Qmp:
    """A connection to one running QEMU."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `Qmp.connect`."""
        self._reader = reader
        self._writer = writer
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.shutdown_reason: str | None = None  # of the SHUTDOWN event, when one came

    @classmethod
    async def connect(cls, socket: Path, process: asyncio.subprocess.Process) -> Qmp:
        """Connect as soon as QEMU listens."""
        deadline = asyncio.get_running_loop().time() + _QMP_SECONDS
        while True:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                reader, writer = await asyncio.open_unix_connection(str(socket))
                break
            if process.returncode is not None:
                raise LabError(f"QEMU ended at once (status {process.returncode}); its words are on the console")
            if asyncio.get_running_loop().time() > deadline:
                raise LabError(f"QEMU did not open {socket.name} within {_QMP_SECONDS} s")
            await asyncio.sleep(0.02)
        connection = cls(reader, writer)
        await asyncio.wait_for(reader.readline(), _QMP_SECONDS)  # the greeting
        connection._task = asyncio.create_task(connection._read(), name=f"QMP of {socket.parent.name}")
        await connection.execute("qmp_capabilities")
        return connection

    async def execute(self, command: str, **arguments: Any) -> Any:
        async with self._turn:
            request = {"execute": command, "arguments": arguments} if arguments else {"execute": command}
            self._writer.write(json.dumps(request).encode() + b"\n")
            answer = await asyncio.wait_for(self._answers.get(), _QMP_SECONDS)
        if "error" in answer:
            raise LabError(f"QEMU refused {command}: {answer['error'].get('desc', answer['error'])}")
        return answer["return"]

    async def ended(self) -> None:
        """Wait until QEMU has closed the connection (all its events have been read then)."""
        if self._task:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Hang up."""
        if self._task:
            self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                message = json.loads(line)
                if message.get("event") == "SHUTDOWN":
                    self.shutdown_reason = message["data"].get("reason", "")
                elif "event" not in message:
                    self._answers.put_nowait(message)


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

    def __init__(self, lab: Lab, hardware: Hardware, firmware: Firmware, on_off: OnOff) -> None:
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
        return tuple(disk.spec() for disk in map(as_shown, self._identities))

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

    async def _boot(self, begun: asyncio.Event) -> End:
        await self._wait_for_firmware()
        reason = await self._until_end(self.firmware(), begun)
        if reason == "guest-shutdown" and not self._start_again:
            return End.OFF
        self._start_again = False
        return End.AGAIN if reason in ("guest-reset", "guest-shutdown") else End.CRASHED

    async def _until_end(self, source: BootSource, begun: asyncio.Event) -> str:
        """Run one boot; returns why QEMU ended."""
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
                crashed = crash in done or (early and CRASH.search(self._console.text()))  # a crash resets the machine
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
            if CRASH.search(self._console.text()):
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
        parts = Parts(
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
            given = write_credentials(self._folder / "credentials", rescue_credentials(source))
            rescue = RescueFiles(files["kernel"], files["initrd"], given, self._lab.share())
        return command(self.hardware, parts, swapped, rescue)

    def _variables(self) -> Path:
        """The memory of this machine's UEFI: its boot entries stay over power cuts."""
        file = self._folder / "uefi-variables.fd"
        if not file.exists():
            if not OVMF_CODE.exists():
                raise LabError("UEFI machines of kind qemu need a firmware; run: apt-get install ovmf")
            shutil.copy(OVMF_VARIABLES, file)
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
