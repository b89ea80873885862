# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dedicated servers as containers: several disks, reported apart by what the guest's own tools say of them."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lab import images
from lab.machines.backend import Backend
from tests.key_pairs import key_pair
from tests.lab.machines.guest import BOOT_ID, Bench, DiskSpec, FromDisk, Key, Rescue, dedicated
from tests.waiting import until_async

pytestmark = pytest.mark.nspawn
_MIB = 1 << 20
_COLUMNS = "NAME,KNAME,SIZE,WWN,SERIAL,MODEL,ROTA,TRAN,TYPE,FSTYPE,PKNAME"
_FIRST = DiskSpec(64 * _MIB, "nvme", "S1", "eui.0025385b71b00001", "SAMSUNG MZVL2512HCJQ")
_SECOND = DiskSpec(64 * _MIB, "nvme", "S2", "eui.0025385b71b00002", "SAMSUNG MZVL2512HCJQ")
_SPINNING = DiskSpec(96 * _MIB, "sata", "ZC1", "0x5000c500a0000001", "ST4000NM0245", rotational=True)
_BY_ID = "/dev/disk/by-id"


async def _lsblk(one: Bench) -> list[dict[str, Any]]:
    answer = await one.ssh(f"lsblk -J -b -o {_COLUMNS}")
    assert answer.status == 0, answer
    return _sorted(json.loads(answer.out)["blockdevices"])


def _sorted(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By name; lsblk goes by device numbers."""
    return sorted(devices, key=lambda device: str(device["name"]))


async def _until(one: Bench, words: str) -> None:
    """Wait until a condition holds inside the guest."""

    async def holds() -> bool:
        return (await one.ssh(words)).status == 0

    await until_async(holds, words, pause=0.1)


async def test_tools_in_the_rescue_distinguish_the_disks(nspawn_backend: Backend, key: Key) -> None:
    one = dedicated(nspawn_backend, key, 1, (_FIRST, _SPINNING, DiskSpec(32 * _MIB)), uefi=True)
    await one.up()
    cloud_serial = one.machine.disks[2].serial
    assert await _lsblk(one) == [
        {"name": name, "kname": name, "size": size, "wwn": wwn, "serial": serial, "model": model, "rota": rota,
         "tran": tran, "type": "disk", "fstype": None, "pkname": None}
        for name, size, wwn, serial, model, rota, tran in (
            ("nvme0n1", 64 * _MIB, "eui.0025385b71b00001", "S1", "SAMSUNG MZVL2512HCJQ", False, "nvme"),
            ("sda", 96 * _MIB, "0x5000c500a0000001", "ZC1", "ST4000NM0245", True, "sata"),
            ("sdb", 32 * _MIB, None, cloud_serial, "QEMU HARDDISK", False, None),
        )
    ]  # fmt: skip
    links = {
        f"nvme-{_FIRST.wwn}": "nvme0n1",
        "nvme-SAMSUNG_MZVL2512HCJQ_S1": "nvme0n1",
        "ata-ST4000NM0245_ZC1": "sda",
        f"wwn-{_SPINNING.wwn}": "sda",
        f"scsi-0QEMU_QEMU_HARDDISK_{cloud_serial}": "sdb",
    }
    resolved = await one.ssh("readlink -e " + " ".join(f"{_BY_ID}/{name}" for name in links))
    assert resolved.out.split() == [f"/dev/{name}" for name in links.values()]
    properties = (await one.ssh("udevadm info --query=property /dev/sda")).out.splitlines()
    assert {"ID_SERIAL=ST4000NM0245_ZC1", "ID_WWN=0x5000c500a0000001", "DEVNAME=/dev/sda"} <= set(properties)
    assert (await one.ssh("ls /sys/block /sys/class/block | sort -u")).out.split() == [
        "/sys/block:", "/sys/class/block:", "nvme0n1", "sda", "sdb",
    ]  # fmt: skip
    assert (await one.ssh("cat /sys/firmware/efi/fw_platform_size")).out == "64\n"
    assert "Read-only" in (await one.ssh("echo 1 > /sys/block/sda/ro")).err


async def test_rescue_has_what_the_hosters_rescue_has(nspawn_backend: Backend, key: Key, tmp_path: Path) -> None:
    """What CAPH's inspection and the real installimage call, as they call it."""
    nspawn_backend.share = tmp_path
    one = dedicated(nspawn_backend, key, 1, (_FIRST,))
    await one.start()
    programs = (
        "cryptsetup dmidecode ethtool file fio gpg grub-fstest hdparm jq lspci ntpdate parted smartctl systemd-nspawn"
    )
    assert await one.answers(f"which {programs} | wc -l") == str(len(programs.split()))
    speed = await one.ssh("""ethtool eth0 | awk '/Speed:/{print $2}' | sed 's/[^0-9]//g'""")
    assert int(speed.out) > 0, speed
    clock = await one.ssh("""lscpu | grep "CPU max MHz:" |  awk '{printf "%.1f", $4/1000}'""")
    assert float(clock.out) > 0, clock
    assert (await one.ssh("lscpu -J | jq -r '.lscpu[0].field'")).out == "Architecture:\n"
    read = "fio --name=check --rw=read --bs=128k --filename=/dev/nvme0n1 --direct=1 --runtime=1 --output-format=terse"
    measured = await one.ssh(f"{read} | awk -F';' 'NR==1{{print $7}}'")
    assert int(measured.out) > 0, measured
    facts = await one.ssh("cd /sys/class/dmi/id && cat board_vendor board_name product_name; stat -c %a board_serial")
    assert facts.out.splitlines() == [one.hardware.manufacturer, *[one.hardware.product] * 2, "400"]
    # a file of its own, so that the caches of the host stay
    dropped = await one.ssh("cd /proc/sys/vm && echo 3 >drop_caches && cat drop_caches; stat -fc %T drop_caches")
    assert (dropped.out.split(), dropped.err) == (["3", "overlayfs"], "")
    keys = "/usr/share/keyrings/debian-archive-bookworm-stable.gpg"
    assert (await one.ssh(f"gpg --batch --import {keys}")).status == 0, "its agent is needed for that"
    share = (await one.ssh("grep ' /root/.oldroot/nfs ' /proc/mounts")).out.split()
    assert (share[0], share[3].split(",")[0]) == ("nfs.lab:/nfs", "ro")
    started = "systemctl list-units --plain --no-legend --state=active,failed 'fio*' 'grub*' 'machines*' '*machined*'"
    assert (await one.ssh(started)).out == ""


async def test_real_installimage_leaves_the_rescue_as_it_is(nspawn_backend: Backend, key: Key, tmp_path: Path) -> None:
    """It unmounts what has a path as its source, and gives an address to each interface that is not virtual."""
    nspawn_backend.share = tmp_path
    one = dedicated(nspawn_backend, key, 1, (_FIRST,))
    await one.up()
    sources = await one.ssh("awk '{print $1, $2}' /proc/mounts | grep '^/' | grep -v ^/dev/loop")
    assert (sources.out, sources.err) == ("", "")
    kinds = await one.ssh(
        "for path in /sys/class/net/*; do name=${path##*/}; "
        "test -d /sys/devices/virtual/net/$name && echo $name virtual || echo $name $(cat $path/address); done"
    )
    assert sorted(kinds.out.splitlines()) == [f"eth0 {one.hardware.mac}", "lo virtual"], kinds
    assert (await one.ssh("networkctl --no-legend list eth0")).out.split()[1:3] == ["eth0", "ether"]


async def test_disks_are_in_good_health(nspawn_backend: Backend, key: Key) -> None:
    """As CAPH and our own modules ask."""
    one = dedicated(nspawn_backend, key, 1, (_FIRST, _SPINNING))
    await one.up()
    for device in ("nvme0n1", "sda"):
        reported = await one.ssh(f"smartctl -H /dev/{device}")
        heads = ("smartctl 7", "Copyright", "===")
        kept = [line for line in reported.out.splitlines() if line and not line.startswith(heads)]
        assert (kept, reported.status) == (["SMART overall-health self-assessment test result: PASSED"], 0), reported
        found = json.loads((await one.ssh(f"smartctl --health --json /dev/{device}")).out)
        assert (found["smart_status"]["passed"], found["device"]["name"]) == (True, f"/dev/{device}")
    assert (await one.ssh("smartctl --health /dev/zero")).status != 0
    assert (await one.ssh("smartctl --version")).out.startswith("smartctl 7")


async def test_partitions_and_what_they_hold_are_shown_at_once(nspawn_backend: Backend, key: Key) -> None:
    one = dedicated(nspawn_backend, key, 1, (_FIRST, _SPINNING))
    await one.start()
    table = "printf 'label: gpt\\nsize=20MiB, name=first\\nsize=20MiB\\n' | sfdisk --quiet"
    await one.answers(f"{table} /dev/nvme0n1 && {table} /dev/sda")
    await _until(one, "[ -b /dev/nvme0n1p2 ] && [ -b /dev/sda2 ]")
    made = await one.ssh("mkfs.ext4 -q -L data /dev/nvme0n1p2 && mkswap -q /dev/sda1 && mkfs.vfat /dev/sda2 >/dev/null")
    assert made.status == 0, made
    await _until(one, "[ -e /dev/disk/by-label/data ] && [ $(lsblk -no FSTYPE /dev/sda | wc -w) = 2 ]")
    nvme, sata = await _lsblk(one)
    assert [(part["name"], part["size"], part["fstype"], part["pkname"]) for part in _sorted(nvme["children"])] == [
        ("nvme0n1p1", 20 * _MIB, None, "nvme0n1"),
        ("nvme0n1p2", 20 * _MIB, "ext4", "nvme0n1"),
    ]
    assert [(part["name"], part["fstype"]) for part in _sorted(sata["children"])] == [
        ("sda1", "swap"),
        ("sda2", "vfat"),
    ]
    assert (await one.ssh(f"readlink -e {_BY_ID}/wwn-{_SPINNING.wwn}-part2")).out == "/dev/sda2\n"
    assert (await one.ssh("readlink -e /dev/disk/by-partlabel/first")).out == "/dev/sda1\n"  # both: the last wins
    await one.answers("sfdisk --quiet --part-label /dev/sda 1 other")
    await _until(one, "[ $(readlink -e /dev/disk/by-partlabel/first) = /dev/nvme0n1p1 ]")
    uuid = (await one.ssh("blkid -o value -s UUID /dev/nvme0n1p2")).out.strip()
    assert (
        await one.ssh(f"mount UUID={uuid} /mnt && findmnt -no SOURCE /mnt && umount /mnt")
    ).out == "/dev/nvme0n1p2\n"
    assert (await one.ssh("cat /sys/class/block/sda2/start /sys/block/sda/sda2/size")).out == "43008\n40960\n"

    await one.ssh("wipefs --all --quiet /dev/nvme0n1p2")
    await _until(one, '[ ! -e /dev/disk/by-label/data ] && [ -z "$(lsblk -no FSTYPE /dev/nvme0n1)" ]')
    await one.ssh("sgdisk --zap-all /dev/sda; sgdisk --delete=1 /dev/nvme0n1")
    await _until(one, "[ \"$(ls /sys/class/block | tr '\\n' ' ')\" = 'nvme0n1 nvme0n1p2 sda ' ]")
    await _until(one, "[ \"$(ls /dev | grep -E '^(nvme|sd)' | tr '\\n' ' ')\" = 'nvme0n1 nvme0n1p2 sda ' ]")
    await one.ssh("blockdev --setro /dev/sda")
    await _until(one, "[ $(lsblk -dno RO /dev/sda) = 1 ]")


async def test_letters_swap_at_every_other_boot_and_data_stays(nspawn_backend: Backend, key: Key) -> None:
    one = dedicated(nspawn_backend, key, 1, (_FIRST, _SECOND, _SPINNING), swaps_letters=True)
    await one.start()
    names = "lsblk -dno NAME,SERIAL | sort"
    assert (await one.answers(names)).split() == ["nvme0n1", "S1", "nvme1n1", "S2", "sda", "ZC1"]
    written = f"for disk in S1 S2; do echo on-$disk | dd of={_BY_ID}/nvme-SAMSUNG_MZVL2512HCJQ_$disk conv=fsync; done"
    assert (await one.ssh(written)).status == 0
    digests = [await one.machine.disk_digest(index) for index in range(3)]
    assert digests[0] == hashlib.sha256(b"on-S1\n".ljust(64 * _MIB, b"\0")).hexdigest()
    assert digests[2] == hashlib.sha256(bytes(96 * _MIB)).hexdigest()
    for expected in (["nvme0n1", "S2", "nvme1n1", "S1"], ["nvme0n1", "S1", "nvme1n1", "S2"]):
        await one.machine.reset()
        assert (await one.answers(names)).split() == [*expected, "sda", "ZC1"]
        found = await one.ssh("head -qc 6 /dev/nvme0n1 /dev/nvme1n1")
        assert found.out.split() == [f"on-{expected[1]}", f"on-{expected[3]}"]
    assert [await one.machine.disk_digest(index) for index in range(3)] == digests
    await one.machine.destroy()
    assert not [path for path in nspawn_backend.disks.iterdir() if path.name.startswith("m")]


async def test_rescue_has_the_given_host_keys_password_and_share(
    nspawn_backend: Backend, key: Key, tmp_path: Path
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (share / "note").write_text("for all\n")
    nspawn_backend.share = share
    made = {tmp_path / kind: key_pair(tmp_path / kind, kind) for kind in ("ed25519", "ecdsa", "rsa")}
    one = dedicated(nspawn_backend, key, 1, (_FIRST,))
    one.arm(Rescue((key.public,), "pass words", tuple((file.name, file.read_text()) for file in made)))
    await one.start()
    assert await one.answers("cat /root/.oldroot/nfs/note") == "for all"
    assert "Read-only" in (await one.ssh("touch /root/.oldroot/nfs/mine")).err
    shown = {" ".join(public.split()[:2]) for public in made.values()}
    assert await one.host_keys() == shown
    askpass = tmp_path / "askpass"
    askpass.write_text("#!/bin/sh\necho 'pass words'\n")
    askpass.chmod(0o700)
    login = [
        "ssh", "-F", "none", "-o", "PubkeyAuthentication=no", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
        "-o", "UserKnownHostsFile=/dev/null", f"root@{one.hardware.ipv4}", "hostname",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *login, stdin=-3, stdout=-1, env={"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
    )
    assert (await process.communicate())[0] == b"rescue\n"
    await one.machine.reset()  # armed without them
    one.arm(one.rescue())
    await one.machine.reset()
    await one.answers("true")
    assert not shown & await one.host_keys()
    assert (await one.ssh("sshd -T | grep '^passwordauthentication'")).out == "passwordauthentication no\n"


@pytest.mark.long
async def test_second_disk_boots_when_the_first_cannot(nspawn_backend: Backend, key: Key) -> None:
    one = dedicated(nspawn_backend, key, 1, (_FIRST, DiskSpec(4 << 30, "sata"), DiskSpec(64 * _MIB, "sata")))
    await one.up()
    await one.write(images.ensure("debian").files["zst"])
    await one.seed("web-1")
    one.arm(FromDisk())
    first = await one.answers(BOOT_ID)
    await one.machine.ctrl_alt_del()
    assert await one.answers("hostname", unless="rescue") == "web-1"
    assert (await one.ssh("findmnt -no SOURCE /; lsblk -dno NAME | sort")).out.split() == [
        "/dev/sda2",
        "nvme0n1",
        "sda",
        "sdb",
    ]
    assert (await one.ssh("ls -d /sys/firmware/efi")).status != 0
    second = (await one.ssh(BOOT_ID)).out.strip()
    assert second != first
    await one.machine.ctrl_alt_del()
    assert await one.answers(f"test $(hostname) = web-1 && {BOOT_ID}", unless=second) not in (first, second)


async def test_uefi_machine_wants_a_loader_in_an_esp(nspawn_backend: Backend, key: Key) -> None:
    one = dedicated(nspawn_backend, key, 1, (_FIRST,), uefi=True)
    await one.start()
    table = "printf 'label: gpt\\nsize=40MiB, type=U\\n' | sfdisk --quiet /dev/nvme0n1"
    await one.answers(f"{table} && printf code | dd of=/dev/nvme0n1 conv=notrunc,fsync status=none")
    one.arm(FromDisk())
    await one.machine.reset()
    await one.says("no EFI/BOOT/BOOTX64.EFI in an EFI system partition")
    await one.says("System halted")
