# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines in QEMU: the whole way from the rescue over the boot loader to the written system, and the power button."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend
from tests.key_pairs import key_pair
from tests.lab.machines.guest import BOOT_ID, DiskSpec, FromDisk, Key, Rescue, bench, dedicated, publish

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(4800)]
_SLOW = 1800  # seconds until it hangs: without KVM, everything takes its time


async def test_rescue_writes_a_system_that_its_boot_loader_starts(qemu_backend: Backend, key: Key) -> None:
    """A dedicated server with UEFI: rescue through its firmware, the written system by a loader from its ESP."""
    disks = (DiskSpec(4 << 30, "nvme", "S1"), DiskSpec(64 << 20, "sata", "ZC1", rotational=True))
    one = dedicated(qemu_backend, key, 1, disks, uefi=True)
    await one.start()
    rescue = await one.answers(BOOT_ID, limit=_SLOW)
    assert await one.answers("hostname") == "rescue"
    dmi = "cat /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/class/dmi/id/product_serial"
    assert (await one.ssh(dmi)).out.splitlines() == ["ASUSTeK", "AX41-NVMe", str(one.hardware.machine_id)]
    assert (await one.ssh("cat /root/.ssh/authorized_keys")).out.strip() == key.public
    assert (await one.ssh("cat /sys/firmware/efi/fw_platform_size")).out == "64\n"
    columns = "NAME,SIZE,SERIAL,WWN,MODEL,ROTA,TRAN"
    shown = json.loads((await one.ssh(f"lsblk -J -b -d -o {columns}")).out)["blockdevices"]
    assert sorted(shown, key=lambda disk: str(disk["name"])) == [
        {"name": name, "size": disk.size_bytes, "serial": disk.serial, "wwn": disk.wwn, "model": disk.model,
         "rota": disk.rotational, "tran": disk.kind}
        for name, disk in zip(("nvme0n1", "sda"), one.machine.disks, strict=True)
    ]  # fmt: skip
    empty = await one.machine.disk_digest(1)

    # over HTTP, since SSH's ciphers are slow without KVM
    server = await publish(qemu_backend, images.ensure("debian").files["zst"])
    fetch = f"curl -sf --max-time 300 http://{qemu_backend.gateway}:8080/"
    write = "zstd -dc | dd of=/dev/nvme0n1 bs=4M iflag=fullblock conv=sparse status=none"
    settled = "blockdev --rereadpt /dev/nvme0n1 && udevadm settle"
    written = await one.ssh(f"set -o pipefail; {fetch} | {write} && {settled}")
    assert written.status == 0, written
    server.close()
    await one.seed("web-1", "/dev/nvme0n1p2")
    one.arm(FromDisk())
    await one.machine.ctrl_alt_del()
    await one.boots_again(2, limit=_SLOW)
    assert await one.answers("hostname", limit=_SLOW, unless="rescue") == "web-1"
    assert (await one.ssh(BOOT_ID)).out.strip() != rescue
    assert "BOOT_IMAGE=" in (await one.ssh("cat /proc/cmdline")).out, "a boot loader started the kernel"
    assert (await one.ssh("findmnt -no SOURCE /; ls -d /sys/firmware/efi")).out.split() == [
        "/dev/nvme0n1p2", "/sys/firmware/efi",
    ]  # fmt: skip
    assert f"{one.hardware.ipv4}/24" in (await one.ssh("ip -4 -o addr show eth0")).out
    assert (await one.ssh("cloud-init status --wait")).out.strip().endswith("status: done")
    assert "DataSourceNoCloud" in (await one.ssh("cat /run/cloud-init/result.json")).out
    # cloud-init grows the root file system where there is a real kernel under it
    assert int((await one.ssh("findmnt -bno SIZE /")).out) > 3.5e9
    assert await one.machine.disk_digest(1) == empty
    assert one.boots == [one.rescue(), FromDisk()]

    await one.machine.press_power_button()
    await asyncio.wait_for(one.switched_off.wait(), _SLOW)
    assert not one.machine.running


async def test_disks_change_places_and_keep_their_data(qemu_backend: Backend, key: Key, tmp_path: Path) -> None:
    """In the rescue. Which letter a place gives is the kernel's choice: it looks at them all at the same time."""
    given = tmp_path / "host-key"
    key_pair(given)
    share = tmp_path / "share"
    share.mkdir()
    (share / "note").write_text("for all\n")
    qemu_backend.share = share
    disks = tuple(DiskSpec(64 << 20, "sata", serial) for serial in ("S1", "S2"))
    one = dedicated(qemu_backend, key, 1, disks, swaps_letters=True)
    one.arm(Rescue((key.public,), None, (("ed25519", given.read_text()),)))
    await one.start()
    places = (
        "for disk in /dev/disk/by-id/ata-*; do udevadm info --query=property --property=ID_PATH --value $disk; done"
    )
    shown = await one.answers(places, limit=_SLOW)
    assert len(one.boots) == 1, one.machine.console()
    assert shown.split() == [f"pci-0000:00:1f.2-ata-{port}.0" for port in (1, 2)]
    assert await one.host_keys() == {" ".join(given.with_suffix(".pub").read_text().split()[:2])}
    shared = await one.ssh(
        "cat /root/.oldroot/nfs/note || journalctl -b -o short-monotonic | grep -iE 'share|9p|mount'"
    )
    assert shared.out == "for all\n"
    assert (await one.ssh("findmnt -no SOURCE /root/.oldroot/nfs")).out == "nfs.lab:/nfs\n"
    assert (await one.ssh("cat /sys/class/dmi/id/board_name")).out == f"{one.hardware.product}\n"
    assert (await one.ssh("ls -d /sys/firmware/efi")).status != 0
    written = "for disk in S1 S2; do echo on-$disk | dd of=$(ls /dev/disk/by-id/ata-*_$disk) conv=fsync; done"
    assert (await one.ssh(written)).status == 0
    first = (await one.ssh(BOOT_ID)).out.strip()
    await one.machine.ctrl_alt_del()
    await one.boots_again(2, limit=_SLOW)
    assert await one.answers(BOOT_ID, limit=_SLOW) != first
    assert (await one.ssh(places)).out.split() == [f"pci-0000:00:1f.2-ata-{port}.0" for port in (2, 1)]
    assert (await one.ssh("head -qc 6 /dev/disk/by-id/ata-*")).out.split() == ["on-S1", "on-S2"]
    expected = hashlib.sha256(b"on-S1\n".ljust(64 << 20, b"\0")).hexdigest()
    assert await one.machine.disk_digest(0) == expected


async def test_power_switch_and_empty_disk(qemu_backend: Backend, key: Key) -> None:
    one = bench(qemu_backend, key, 1, memory_mib=1024)
    await one.machine.create(None)
    one.arm(FromDisk())
    await one.machine.power_on()
    await one.machine.reset()
    assert one.machine.running
    assert one.boots == [FromDisk(), FromDisk()]
    assert (await one.ssh("true")).status == 255
    await one.machine.cut_power()
    assert not one.machine.running
    assert not one.switched_off.is_set()
