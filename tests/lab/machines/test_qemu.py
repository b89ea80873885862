# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines in QEMU: the whole way from the rescue over the boot loader to the written system, and the power button."""

from __future__ import annotations

import asyncio

import pytest

from lab import images
from lab.machines.site import Site
from tests.lab.machines.guest import BOOT_ID, FromDisk, Key, bench, publish

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(1200)]
_SLOW = 400  # seconds; without KVM everything takes its time


async def test_rescue_writes_a_system_that_its_boot_loader_starts(qemu_site: Site, key: Key) -> None:
    one = bench(qemu_site, key, 1)
    await one.machine.create(None)
    await one.machine.power_on()
    rescue = await one.answers(BOOT_ID, limit=_SLOW)
    assert await one.answers("hostname") == "rescue"
    assert (
        await one.ssh("cat /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name")
    ).out == "Hetzner\nvServer\n"
    assert (await one.ssh("cat /sys/class/dmi/id/product_serial")).out.strip() == str(one.hardware.machine_id)
    assert (await one.ssh("cat /root/.ssh/authorized_keys")).out.strip() == key.public
    assert (await one.ssh("lsblk -dno NAME,SIZE -b /dev/sda")).out.split() == ["sda", str(one.hardware.disk_bytes)]

    # over HTTP, since SSH's ciphers are slow without KVM
    server = await publish(qemu_site, images.ensure("debian").files["zst"])
    fetch = f"curl -sf http://{qemu_site.gateway}:8080/ | zstd -dc | dd of=/dev/sda bs=4M iflag=fullblock conv=sparse"
    written = await one.ssh(f"set -o pipefail; {fetch} status=none && blockdev --rereadpt /dev/sda && udevadm settle")
    assert written.status == 0, written
    server.close()
    await one.seed("web-1")
    one.arm(FromDisk())
    await one.ssh("systemctl reboot")
    assert await one.answers("hostname", limit=_SLOW, unless="rescue") == "web-1"
    assert (await one.ssh(BOOT_ID)).out.strip() != rescue
    assert "BOOT_IMAGE=" in (await one.ssh("cat /proc/cmdline")).out, "a boot loader started the kernel"
    assert f"{one.hardware.ipv4}/24" in (await one.ssh("ip -4 -o addr show eth0")).out
    assert (await one.ssh("cloud-init status --wait")).out.strip().endswith("status: done")
    # cloud-init grows the root file system where there is a real kernel under it
    assert int((await one.ssh("findmnt -bno SIZE /")).out) > 3.5e9
    assert one.boots == [one.rescue(), FromDisk()]

    await one.machine.press_power_button()
    await asyncio.wait_for(one.switched_off.wait(), _SLOW)
    assert not one.machine.running


async def test_power_switch_and_empty_disk(qemu_site: Site, key: Key) -> None:
    one = bench(qemu_site, key, 1, memory_mib=1024)
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
