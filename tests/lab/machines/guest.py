# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A person at the lab: keys, SSH sessions, and machines whose boot source can be changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.machines.backend import Backend
from lab.machines.base import BootSource, DiskSpec, FromDisk, Hardware, Machine, Rescue
from tests.key_pairs import key_pair
from tests.waiting import until_async

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
LIMIT = 240.0  # seconds; a container is up within a few on an idle host


@dataclass
class Key:
    """An SSH key pair in files."""

    private: Path

    @classmethod
    def make(cls, folder: Path, name: str = "key") -> Key:
        private = folder / name
        key_pair(private)
        return cls(private)

    @property
    def public(self) -> str:
        return self.private.with_suffix(".pub").read_text().strip()


@dataclass
class Answer:
    """What a command over SSH gave back."""

    status: int
    out: str
    err: str


@dataclass
class Bench:
    """One machine on the bench, with the switches of its firmware."""

    machine: Machine
    hardware: Hardware
    key: Key
    source: list[BootSource]
    boots: list[BootSource] = field(default_factory=list)
    switched_off: asyncio.Event = field(default_factory=asyncio.Event)

    def arm(self, source: BootSource) -> None:
        """Choose the source of the coming boots."""
        self.source[0] = source

    def rescue(self) -> Rescue:
        """A rescue that our key opens."""
        return Rescue((self.key.public,))

    async def start(self, image: Path | None = None) -> None:
        """Create it, with an image on its first disk, and switch it on."""
        await self.machine.create(image)
        await self.machine.power_on()

    async def up(self, image: Path | None = None) -> None:
        """The same, and wait until it answers."""
        await self.start(image)
        await self.answers("true")

    async def system(self, by_reset: bool = False) -> str:
        """Boot from the disk in place of the rescue, and return the hostname of the system there."""
        self.arm(FromDisk())
        await (self.machine.reset() if by_reset else self.ssh("systemctl reboot"))
        return await self.answers("hostname", unless="rescue")

    def command(self, words: str, key: Key | None = None, connect: int = 20) -> list[str]:
        """The SSH command line; ``connect``: seconds until a silent address counts as unreachable."""
        return [
            "ssh", "-F", "none", "-i", str((key or self.key).private), "-o", "IdentitiesOnly=yes",
            "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=6",
            "-o", f"ConnectTimeout={connect}", f"root@{self.hardware.ipv4}", words,
        ]  # fmt: skip

    async def ssh(self, words: str, key: Key | None = None, connect: int = 20) -> Answer:
        """Run a command in the machine, once."""
        command = self.command(words, key, connect)
        process = await asyncio.create_subprocess_exec(*command, stdin=-3, stdout=-1, stderr=-1)
        out, err = await process.communicate()
        return Answer(process.returncode or 0, out.decode(), err.decode())

    async def answers(self, words: str, limit: float = LIMIT, unless: str | None = None) -> str:
        """Output of a command as soon as the machine answers with something else than ``unless``."""
        answer = Answer(255, "", "")

        async def good() -> bool:
            nonlocal answer
            answer = await self.ssh(words)
            return answer.status == 0 and answer.out.strip() != unless

        await until_async(good, f"an answer to {words!r}", limit, 0.1, lambda: f"{answer}\n{self._shown()}")
        return answer.out.strip()

    async def boots_again(self, count: int, limit: float = LIMIT) -> None:
        """Wait until the firmware has been asked ``count`` times; a session begun before would end in silence."""

        async def asked() -> bool:
            return len(self.boots) >= count

        await until_async(asked, f"boot {count}", limit, show=lambda: f"{len(self.boots)} boots\n{self._shown()}")

    async def host_keys(self) -> set[str]:
        """The public host keys the machine shows."""
        process = await asyncio.create_subprocess_exec(
            "ssh-keyscan", "-T", "30", self.hardware.ipv4, stdout=-1, stderr=-3
        )
        out, _none = await process.communicate()
        return {line.split(maxsplit=1)[1] for line in out.decode().splitlines() if not line.startswith("#")}

    async def says(self, words: str, limit: float = LIMIT) -> None:
        """Wait for words on the console."""

        async def there() -> bool:
            return words in self.machine.console()

        await until_async(there, f"{words!r} on the console", limit, show=self._shown)

    def _shown(self) -> str:
        return f"console:\n{self.machine.console()[-3000:]}"

    async def write(self, image: Path, unpack: str = "zstd -dc") -> None:
        """Write an image over SSH, as anybody would by hand."""
        command = self.command(f"{unpack} | dd of=/dev/sda bs=4M iflag=fullblock status=none && sync")
        with image.open("rb") as file:
            process = await asyncio.create_subprocess_exec(*command, stdin=file, stdout=-1, stderr=-2)
            out, _none = await process.communicate()
        assert process.returncode == 0, out.decode()

    async def seed(self, name: str, partition: str = "/dev/sda2") -> None:
        """Leave bootstrap data for the new system, in the rescue: a name and our key."""
        folder = "/mnt/var/lib/cloud/seed/nocloud"
        script = f"""set -e
            for try in $(seq 1800); do [ -b {partition} ] && break; sleep 0.1; done
            mount {partition} /mnt; mkdir -p {folder}
            printf 'instance-id: i-{name}\\nlocal-hostname: {name}\\n' > {folder}/meta-data
            printf '#cloud-config\\nssh_authorized_keys:\\n- {self.key.public}\\n' > {folder}/user-data
            umount /mnt"""
        answer = await self.ssh(script)
        assert answer.status == 0, answer


async def publish(backend: Backend, file: Path, port: int = 8080) -> asyncio.Server:
    """Serve one file to machines by plain HTTP on the site's gateway."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\nContent-Length: {file.stat().st_size}\r\n\r\n".encode())
        with file.open("rb") as content:
            await asyncio.get_running_loop().sendfile(writer.transport, content)
        writer.close()

    return await asyncio.start_server(answer, sock=backend.listen(port))


def bench(backend: Backend, key: Key, index: int, disk_bytes: int = 4 << 30, memory_mib: int = 2048) -> Bench:
    """The index-th machine of a site, of the cloud: rescue armed, no disk yet."""
    disks = (DiskSpec(disk_bytes),)
    hardware = Hardware(
        1000 + index, f"machine-{index}", 1, memory_mib, disks, backend.mac(index), backend.address(index)
    )
    return on_bench(backend, key, hardware)


def dedicated(backend: Backend, key: Key, index: int, disks: tuple[DiskSpec, ...], **more: Any) -> Bench:
    """The index-th machine of a site, a dedicated server with these disks."""
    hardware = Hardware(
        4700 + index, f"server-{index}", 1, 2048, disks, backend.mac(index), backend.address(index),
        manufacturer="ASUSTeK", product="AX41-NVMe", **more,
    )  # fmt: skip
    return on_bench(backend, key, hardware)


def on_bench(backend: Backend, key: Key, hardware: Hardware) -> Bench:
    """A machine with rescue armed and no disk yet."""
    source: list[BootSource] = [Rescue((key.public,))]
    boots: list[BootSource] = []
    off = asyncio.Event()

    def firmware() -> BootSource:
        boots.append(source[0])
        return source[0]

    return Bench(backend.machine(hardware, firmware, off.set), hardware, key, source, boots, off)


__all__ = ["BOOT_ID", "Answer", "Bench", "DiskSpec", "FromDisk", "Key", "Rescue", "bench", "dedicated", "publish"]
