# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines as containers: what a person with SSH and a power switch sees of them."""

import asyncio
import hashlib
import json
import os
import socket
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend
from lab.machines.host_commands import run
from tests.integration.commands.disks import loop, mount, sh
from tests.lab.machines.guest import BOOT_ID, LIMIT, FromDisk, Key, bench
from tests.waiting import until_async

pytestmark = pytest.mark.nspawn
_CAP_SYS_RESOURCE = 24


def _host_may_resize_online() -> bool:
    """Some hosts withhold the capability that ext4 asks for, from root as well."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)


async def test_rescue_opens_for_the_armed_key_only(nspawn_backend: Backend, key: Key, tmp_path: Path) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    assert one.machine.running
    assert await one.answers("hostname") == "rescue"
    assert (await one.ssh("true", Key.make(tmp_path, "stranger"))).status == 255
    assert (await one.ssh("cat /root/.ssh/authorized_keys")).out == f"{key.public}\n"
    assert "password" not in (await one.ssh("sshd -T | grep -i '^authenticationmethods'")).out
    assert (await one.ssh("sshd -T | grep '^passwordauthentication'")).out.split() == ["passwordauthentication", "no"]
    size = (await one.ssh("blockdev --getsize64 /dev/sda")).out
    assert int(size) == one.hardware.disk_bytes


async def test_packets_to_a_machine_that_is_off_vanish(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.machine.create(None)

    def connect(port: int) -> None:
        socket.create_connection((one.hardware.ipv4, port), timeout=5).close()

    with pytest.raises(TimeoutError):  # on the platform no router says that there is no machine
        await asyncio.to_thread(connect, 22)
    await one.machine.power_on()
    await one.answers("true")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(connect, 23)
    await one.machine.cut_power()
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(connect, 22)


async def test_every_rescue_boot_is_a_new_one_on_the_same_disk(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    first, keys = await one.answers(BOOT_ID), await one.host_keys()
    assert len(keys) == 2
    await one.ssh("touch /root/left; echo on-disk | dd of=/dev/sda conv=fsync status=none; systemctl reboot")
    second = await one.answers(BOOT_ID, unless=first)
    assert second != first
    assert not keys & await one.host_keys()
    assert float((await one.ssh("cut -d ' ' -f 1 /proc/uptime")).out) < 600, "that of the machine, not of its host"
    assert (await one.ssh("ls /root")).out == ""
    assert (await one.ssh("head -c 8 /dev/sda")).out == "on-disk\n"[:8]
    assert one.boots == [one.rescue(), one.rescue()]


async def test_a_firmware_that_counts_runs_nothing(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    first = await one.answers(BOOT_ID)
    one.machine.firmware_delay = lambda: 3600.0
    await one.machine.request_reboot()

    async def counting() -> bool:
        return one.machine.in_firmware

    await until_async(counting, "the firmware", LIMIT, 0.1, one.machine.console)
    assert one.machine.running
    assert len(one.boots) == 1, "the firmware has not been asked yet"
    assert (await one.ssh("true", connect=2)).status == 255
    one.machine.firmware_delay = lambda: 0.0
    await one.machine.reset()
    assert await one.answers(BOOT_ID) != first
    assert not one.machine.in_firmware


@pytest.mark.parametrize("content", ["nothing", "a table only"])
async def test_disk_without_a_system_does_not_boot(nspawn_backend: Backend, key: Key, content: str) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.machine.create(None)
    if content == "a table only":
        await one.machine.power_on()
        await one.answers("echo 'label: gpt' | sfdisk --quiet /dev/sda && echo ,,L | sfdisk --quiet --append /dev/sda")
    one.arm(FromDisk())
    await one.machine.reset()
    await one.says("No bootable device")
    assert one.machine.running
    assert (await one.ssh("true", connect=5)).status == 255
    await one.machine.cut_power()
    assert not one.machine.running


async def test_written_image_boots_by_reboot_from_inside(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    rescue = await one.answers(BOOT_ID)
    await one.write(images.ensure("debian").files["zst"])
    await one.seed("web-1")
    assert await one.system() == "web-1"
    assert (await one.ssh(BOOT_ID)).out.strip() != rescue
    assert (await one.ssh("cloud-init status --wait")).out.strip().endswith("status: done")
    address = (await one.ssh("networkctl status eth0 | grep -c DHCP4; ip -4 -o addr show eth0")).out
    assert f"{one.hardware.ipv4}/24" in address
    assert not address.startswith("0")
    assert (await one.ssh("findmnt -no SOURCE /")).out.strip() == "/dev/sda2"
    assert one.boots == [one.rescue(), FromDisk()]


async def test_partition_nodes_follow_the_table(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.up()
    nodes = "ls /dev | grep '^sda' | tr '\\n' ' '"
    assert (await one.ssh(nodes)).out == "sda "
    await one.ssh("printf 'label: gpt\\nsize=8MiB\\nsize=8MiB\\nsize=8MiB\\n' | sfdisk --quiet /dev/sda")
    assert await one.answers(nodes, unless="sda") == "sda sda1 sda2 sda3"
    await one.ssh("sgdisk --delete=2 /dev/sda")
    assert await one.answers(nodes, unless="sda sda1 sda2 sda3") == "sda sda1 sda3"
    assert (await one.ssh("mkfs.ext4 -q /dev/sda3 && mount /dev/sda3 /mnt && umount /mnt")).status == 0
    await one.ssh("wipefs --all --quiet /dev/sda; blockdev --rereadpt /dev/sda")
    assert await one.answers(nodes, unless="sda sda1 sda3") == "sda"


async def test_file_systems_grow_in_the_rescue_and_in_the_system(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.up(images.ensure("debian").files["raw"])
    await one.seed("web-1")
    half = "sgdisk --move-second-header /dev/sda >/dev/null; echo ',2GiB' | sfdisk --quiet -N 2 /dev/sda"
    there = 'until [ "$(blockdev --getsize64 /dev/sda2 2>/dev/null)" = 2147483648 ]; do sleep 0.05; done'
    grown = await one.ssh(f"{half}; {there}; e2fsck -fp /dev/sda2 && resize2fs /dev/sda2")
    assert grown.status == 0, grown
    one.arm(FromDisk())
    await one.ssh("systemctl reboot")
    size = "findmnt -bno SIZE /"
    before = int(await one.answers(f"test $(hostname) = web-1 && {size}"))
    assert 1.8e9 < before < 2.2e9
    assert (await one.ssh("growpart /dev/sda 2")).status == 0
    assert int((await one.ssh("blockdev --getsize64 /dev/sda2")).out) > 3.5e9
    grown = await one.ssh("resize2fs /dev/sda2")
    if _host_may_resize_online():
        assert int((await one.ssh(size)).out) > 3.5e9, grown
    else:
        assert "Permission denied" in grown.err


async def test_discarded_blocks_read_as_zeros(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1, disk_bytes=64 << 20)
    await one.start()
    await one.answers("dd if=/dev/urandom of=/dev/sda bs=1M count=64 conv=fsync status=none; blkdiscard /dev/sda")
    digest = (await one.ssh("sha256sum < /dev/sda")).out.split()[0]
    assert digest == hashlib.sha256(bytes(64 << 20)).hexdigest()


@pytest.mark.long
async def test_power_cut_in_the_middle_of_writing(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.up(images.ensure("debian").files["raw"])
    await one.seed("web-1")
    one.arm(FromDisk())
    await one.machine.reset()
    first = await one.answers(f"test $(hostname) = web-1 && {BOOT_ID}")
    await one.ssh("echo kept > /root/kept; sync")
    writer = asyncio.create_task(one.ssh("i=0; while :; do i=$((i+1)); echo $i > /root/lost-$i; done"))
    await one.answers("test -e /root/lost-10")
    await one.machine.cut_power()
    assert not one.machine.running
    assert not one.switched_off.is_set()
    await writer
    await one.machine.power_on()
    assert await one.answers("cat /root/kept") == "kept"
    assert (await one.ssh(BOOT_ID)).out.strip() != first
    assert one.boots == [one.rescue(), FromDisk(), FromDisk()]


async def test_power_cut_in_the_rescue_keeps_the_disk(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    await one.answers("echo durable | dd of=/dev/sda conv=fsync status=none")
    await one.machine.cut_power()
    assert not one.machine.running
    assert (await one.ssh("true", connect=5)).status == 255
    await one.machine.power_on()
    assert await one.answers("head -c 7 /dev/sda") == "durable"


@pytest.mark.parametrize("how", ["button", "poweroff"])
async def test_system_switches_itself_off(nspawn_backend: Backend, key: Key, how: str) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    # what counts is that the boot has ended, also when a unit that does not matter here failed
    await one.answers("systemctl is-system-running --wait || true")
    if how == "button":
        await one.machine.press_power_button()
    else:
        await one.ssh("systemctl poweroff")
    await asyncio.wait_for(one.switched_off.wait(), LIMIT)
    assert not one.machine.running


async def test_reboot_request_asks_the_firmware_again(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.start()
    first = await one.answers(f"systemctl is-system-running --wait >/dev/null; {BOOT_ID}")
    await one.machine.request_reboot()
    await one.answers(BOOT_ID, unless=first)
    assert len(one.boots) == 2
    assert not one.switched_off.is_set()


async def test_several_machines_at_once(nspawn_backend: Backend, key: Key) -> None:
    many = [bench(nspawn_backend, key, index) for index in range(1, 6)]
    await asyncio.gather(*(one.machine.create(images.ensure("debian").files["raw"]) for one in many))
    await asyncio.gather(*(one.machine.power_on() for one in many))
    boots = await asyncio.gather(*(one.answers(BOOT_ID) for one in many))
    assert len(set(boots)) == 5
    keys = await asyncio.gather(*(one.host_keys() for one in many))
    assert len(frozenset().union(*keys)) == 10


async def test_snapshot_of_a_disk_becomes_another_machine(nspawn_backend: Backend, key: Key) -> None:
    one, two = bench(nspawn_backend, key, 1), bench(nspawn_backend, key, 2)
    await one.up(images.ensure("debian").files["raw"])
    await one.seed("golden")
    await one.machine.cut_power()
    snapshot = nspawn_backend.disks / "snapshot.raw"
    assert await one.machine.copy_disk(snapshot) > 100 << 20
    assert snapshot.stat().st_size == 4 << 30
    assert snapshot.stat().st_blocks * 512 < 2 << 30, "what was never written is not copied"
    await two.machine.create(snapshot)
    two.arm(FromDisk())
    await two.machine.power_on()
    assert await two.answers("hostname") == "golden"
    assert two.hardware.ipv4 in (await two.ssh("ip -4 -o addr show eth0")).out


async def test_lab_services_are_reachable_from_machines(nspawn_backend: Backend, key: Key) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nhere")
        await writer.drain()
        writer.close()

    gateway, metadata = nspawn_backend.listen(8080), nspawn_backend.listen(80, "169.254.169.254")
    servers = [await asyncio.start_server(answer, sock=socket) for socket in (gateway, metadata)]
    one = bench(nspawn_backend, key, 1)
    await one.start()
    assert await one.answers(f"curl -s http://{nspawn_backend.gateway}:8080/") == "here"
    assert await one.answers("curl -s http://169.254.169.254/") == "here"
    assert (await one.ssh("curl -s --max-time 120 http://192.0.2.1/")).status == 7, "other networks are refused at once"
    for server in servers:
        server.close()


async def test_the_lab_keeps_its_address_on_the_wire_when_machines_come(nspawn_backend: Backend) -> None:
    network = nspawn_backend._network

    async def address() -> str:
        (link,) = json.loads(await run(*network.command("ip", "-json", "link", "show", "lab")))
        return str(link["address"])

    before = await address()
    # lower than all that the kernel gives to ports, which would become the bridge's
    await network._ns.ip("link add low address 02:00:00:00:00:01 type veth peer name far", "link set low master lab up")
    assert await address() == before


async def test_a_machine_holds_nothing_that_its_host_unmounts(
    nspawn_backend: Backend, key: Key, tmp_path: Path
) -> None:
    (tmp_path / "disk").touch()
    os.truncate(tmp_path / "disk", 16 << 20)
    one = bench(nspawn_backend, key, 1)
    with loop(tmp_path / "disk") as device:
        sh("mkfs.ext4", "-q", device)
        with mount(device, tmp_path / "mounted"):
            await one.up()
        assert one.machine.running
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))  # refused while it is mounted anywhere


async def test_destroyed_machine_leaves_nothing(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.up()
    await one.machine.destroy()
    await one.machine.destroy()
    assert not one.machine.running
    assert not [path for path in os.listdir(nspawn_backend.disks) if path.startswith("m")]
