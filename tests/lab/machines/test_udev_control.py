# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`udevadm settle` in a container waits as it does where udev is real: partitions have their nodes when it returns."""

import asyncio
import re
import socket
import struct
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend
from lab.machines.guest_view import UdevControl
from tests.lab.machines.guest import Key, bench, publish

pytestmark = pytest.mark.nspawn
_DOCUMENTED = Path(__file__).parents[3] / "docs" / "commands.md"


def _documented_command() -> str:
    """The shell command that does the least, as the documentation has it."""
    text = _DOCUMENTED.read_text()
    (block,) = re.findall(r"^    #!/bin/bash\n(?:    .*\n|\n)+?    echo IMAGE_URL_DONE\n", text, re.MULTILINE)
    return re.sub("^    ", "", block, flags=re.MULTILINE)


@pytest.mark.long
async def test_the_documented_command_finds_its_partition(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.up()
    server = await publish(nspawn_backend, images.ensure("debian").files["zst"])
    data = "#cloud-config\ndisable_root: false\n"  # the keys of the rescue are handed over by the command
    await one.ssh(f"cat >/root/command <<'END'\n{_documented_command()}END\ncat >/root/data <<'END'\n{data}END")
    url = f"http://{nspawn_backend.gateway}:8080/debian.raw.zst"
    answer = await one.ssh(f"KUBENODE_INSTALLATION={'0' * 32} bash /root/command {url} /root/data web-1 sda")
    server.close()
    assert (answer.status, answer.out.splitlines()[-1:]) == (0, ["IMAGE_URL_DONE"]), answer
    assert await one.system() == "web-1"


@pytest.mark.parametrize("tell", ["partx --update", "partprobe", "blockdev --rereadpt", "true"])
async def test_nodes_are_there_when_it_returns(nspawn_backend: Backend, key: Key, tell: str) -> None:
    """Tables that change again and again: what has gone is gone, what is new can be used at once."""
    one = bench(nspawn_backend, key, 1, disk_bytes=64 << 20)
    await one.up()
    script = f"""set -e
        for count in 1 3 2 4 1; do
            echo 'label: gpt' >/root/table
            for part in $(seq $count); do echo "size=$((3 + count))MiB, name=n$count-$part" >>/root/table; done
            sfdisk --quiet --no-reread --no-tell-kernel /dev/sda </root/table >/dev/null
            {tell} /dev/sda >/dev/null 2>&1 || true
            udevadm settle --timeout=180
            echo $(ls /dev | grep '^sda.') $(blockdev --getsz /dev/sda$count) $(ls /dev/disk/by-partlabel)
        done"""
    answer = await one.ssh(script)
    assert answer.status == 0, answer
    assert answer.out.splitlines() == [
        " ".join(
            [
                *(f"sda{part}" for part in range(1, count + 1)),
                str((3 + count) * 2048),
                *(f"n{count}-{part}" for part in range(1, count + 1)),
            ]
        )
        for count in (1, 3, 2, 4, 1)
    ]


async def test_no_client_is_answered_before_its_last_message(tmp_path: Path) -> None:
    """udevadm of systemd sends two messages, and fails when the second one is not read."""

    def message(kind: int) -> bytes:
        return struct.pack("16sIIQ", b"udev-252", 0xDEAD1DEA, kind, 0)

    async def settled() -> None:
        return None

    control = UdevControl(tmp_path, settled)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as guest:
        await loop.sock_connect(guest, str(tmp_path / "control"))
        await loop.sock_sendall(guest, message(8))
        for _turn in range(100):  # of the loop: the socket has done all that it does after the first message
            await asyncio.sleep(0)
        await loop.sock_sendall(guest, message(0))
        assert await loop.sock_recv(guest, 1) == b""
    control.close()


async def test_it_neither_fails_nor_waits_without_a_reason(nspawn_backend: Backend, key: Key) -> None:
    one = bench(nspawn_backend, key, 1)
    await one.up()
    answers = await asyncio.gather(*(one.ssh("udevadm settle --timeout=100000") for _number in range(5)))
    assert [answer.status for answer in answers] == [0] * 5
    assert (await one.ssh("udevadm trigger; udevadm info /dev/sda | grep -c ^E:")).status == 0


async def test_what_gets_the_number_of_its_socket_is_listened_to(tmp_path: Path) -> None:
    """A socket that the loop still listened to was closed: the next program that had its number was waited for ever."""

    async def settled() -> None:
        return None

    loop = asyncio.get_running_loop()
    control = UdevControl(tmp_path, settled)
    await asyncio.sleep(0)  # it listens
    control.close()
    pairs = [(*socket.socketpair(), asyncio.Event()) for _number in range(3)]
    for ours, theirs, heard in pairs:
        loop.add_reader(ours, heard.set)
        theirs.send(b"x")
    async with asyncio.timeout(60):
        for _ours, _theirs, heard in pairs:
            await heard.wait()
    for ours, theirs, _heard in pairs:
        loop.remove_reader(ours)
        ours.close()
        theirs.close()
