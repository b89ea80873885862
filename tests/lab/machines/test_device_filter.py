# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers reach their own disks and no others, and change no setting of their host."""

from pathlib import Path

import pytest

from lab.machines.backend import Backend
from tests.lab.machines.guest import Bench, Key, bench

pytestmark = pytest.mark.nspawn
_TABLE = "printf 'label: gpt\\nsize=32MiB\\nsize=32MiB\\n' | sfdisk --quiet /dev/sda; udevadm settle"
_CAP_SYS_MODULE, _CAP_SYS_RAWIO = 16, 17
_OWN = "stat -c '%Hr:%Lr' /dev/sda"


@pytest.fixture
async def pair(nspawn_backend: Backend, key: Key) -> tuple[Bench, Bench]:
    """Two machines in their rescues; the second one has partitions."""
    benches = bench(nspawn_backend, key, 1), bench(nspawn_backend, key, 2)
    for one in benches:
        await one.start()
    await benches[0].answers("true")
    await benches[1].answers(_TABLE)
    await benches[1].answers("test -b /dev/sda2")
    return benches


def _host_disks() -> list[str]:
    """The disks of the host itself, as major:minor."""
    found = [entry for entry in Path("/sys/block").iterdir() if "/devices/virtual/" not in str(entry.resolve())]
    return [(entry / "dev").read_text().strip() for entry in found]


async def _reaches(one: Bench, number: str) -> list[str]:
    """What a guest can do with a block device of this number, which it also finds among all nodes of the kernel."""
    node = f"/root/node-{number.replace(':', '-')}"
    kernels = f"/root/dev/{Path('/sys/dev/block', number).resolve().name}"
    attempts = {
        "make": f"rm -f {node}; mknod {node} b {number.replace(':', ' ')}",
        "read own node": f"test -b {node} && exec 3<{node}",
        "write own node": f"test -b {node} && exec 3<>{node}",
        "read kernel's node": f"exec 3<{kernels}",
        "write kernel's node": f"test -b {kernels} && exec 3<>{kernels}",
    }
    there = await one.ssh(
        f"mkdir -p /root/dev; mountpoint -q /root/dev || mount -t devtmpfs none /root/dev; ls {kernels}"
    )
    assert there.status == 0, there
    return [what for what, command in attempts.items() if (await one.ssh(f'bash -c "{command}"')).status == 0]


async def test_disks_of_the_host_and_of_other_machines_are_out_of_reach(pair: tuple[Bench, Bench]) -> None:
    one, other = pair
    others = [(await other.ssh(f"stat -c '%Hr:%Lr' /dev/{name}")).out.strip() for name in ("sda", "sda1", "sda2")]
    strangers = _host_disks() + others
    assert len(strangers) >= 3
    assert {number: await _reaches(one, number) for number in strangers} == {number: [] for number in strangers}
    own = (await one.ssh(_OWN)).out.strip()
    assert len(await _reaches(one, own)) == 5


async def test_character_devices_are_those_of_containers(pair: tuple[Bench, Bench]) -> None:
    one, _other = pair
    for number, what in (("1 1", "memory"), ("10 237", "the control of loop devices"), ("1 11", "the kernel's log")):
        opened = await one.ssh(f"rm -f /root/c; mknod /root/c c {number} && exec 3</root/c")
        assert opened.status != 0, what
    usable = "for node in null zero urandom tty ptmx; do test -c /dev/$node; done; head -c 3 /dev/zero | wc -c"
    assert (await one.ssh(usable)).out == "3\n"
    assert (await one.ssh("script -qec 'tty' /dev/null")).out.startswith("/dev/pts/")


async def test_settings_of_the_host_stay(pair: tuple[Bench, Bench]) -> None:
    one, _other = pair
    # none that another test or lab changes: they are the host's
    for name in ("fs/lease-break-time", "vm/swappiness", "kernel/panic"):
        before = Path("/proc/sys", name).read_text()
        for place in ("/proc", "/root/proc"):
            mount = "mkdir -p /root/proc; mountpoint -q /root/proc || mount -t proc proc /root/proc"
            setting = f"{place}/sys/{name}"
            answer = await one.ssh(f"{mount}; cat {setting} && echo {int(before) + 1} > {setting}")
            assert (answer.out, answer.status != 0) == (before, True), name
        remounted = await one.ssh(f"mount -o remount,rw /proc/sys; echo {int(before) + 1} > /proc/sys/{name}")
        assert remounted.status != 0
        assert Path("/proc/sys", name).read_text() == before
    # its own network is its own
    assert (
        await one.ssh("echo 7 > /proc/sys/net/ipv4/tcp_syn_retries && cat /proc/sys/net/ipv4/tcp_syn_retries")
    ).out == ("7\n")
    assert Path("/proc/sys/net/ipv4/tcp_syn_retries").read_text() != "7\n"


async def test_sysfs_shows_and_changes_no_other_disk(pair: tuple[Bench, Bench]) -> None:
    one, _other = pair
    own = (await one.ssh("stat -c '%Hr:%Lr' /dev/sda*")).out.split()
    blocks = "find /sys/ -path '*/block/*' -name dev -exec cat {} + | sort -u"
    assert (await one.ssh(blocks)).out.split() == sorted(own)
    for number in _host_disks():
        assert (await one.ssh(f"grep -rslx {number} /sys/devices --include=dev")).out == ""
    assert (await one.ssh("echo 1 > /sys/block/sda/queue/nomerges")).status != 0
    bounding = int((await one.ssh("grep ^CapBnd /proc/self/status")).out.split()[1], 16)
    assert bounding & (1 << _CAP_SYS_MODULE | 1 << _CAP_SYS_RAWIO) == 0


async def test_work_on_its_own_disk_goes_on(pair: tuple[Bench, Bench]) -> None:
    one, _other = pair
    script = """set -e
        printf 'label: gpt\\nsize=64MiB\\nsize=64MiB\\n' | sfdisk --quiet /dev/sda
        partx --update /dev/sda; partx --show /dev/sda >/dev/null; losetup --list >/dev/null
        udevadm settle
        for try in $(seq 1800); do [ -b /dev/sda2 ] && break; sleep 0.1; done
        mkfs.ext4 -q /dev/sda1; mkfs.ext4 -q /dev/sda2
        mount /dev/sda1 /mnt; echo kept >/mnt/file; umount /mnt
        mknod /root/own b $(stat -c '%Hr %Lr' /dev/sda1); mount /root/own /mnt; cat /mnt/file; umount /mnt
        blkid -p -o value -s TYPE /dev/sda1
        sfdisk --quiet --delete /dev/sda 1 >/dev/null
        wipefs --all --quiet /dev/sda >/dev/null"""
    answer = await one.ssh(script)
    assert (answer.status, answer.out.split()) == (0, ["kept", "ext4"]), answer
