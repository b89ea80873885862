# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The QEMU command line of one boot of one machine (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from .base import Hardware
from .identity import Identity

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
