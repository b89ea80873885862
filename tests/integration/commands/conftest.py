# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the shipped commands share."""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from dev.toolchain.paths import memory
from tests.image_commands import image_command
from tests.integration.commands.disks import EFI, MIB, PATH, SYSTEM, Part, build, loop
from tests.integration.commands.registry import Front

COMMAND, ROOTFS_TAR, OCI = image_command("raw-disk"), image_command("rootfs-tar"), image_command("oci")
OLD = b"\xaa" * MIB
#: MiB of old data at the beginning of a disk: where images have data, holes and borders of both
OLD_MIB = 24
#: Bytes of memory for the disk of a test, and room for the others.
ROOM = 4 << 30


@pytest.fixture
def front(registry) -> Iterator[Front]:
    """The way to the registry of the test's module."""
    opened = Front(registry)
    yield opened
    opened.close()


@dataclass
class Outcome:
    """What one run of the command left."""

    code: int
    stdout: str
    stderr: str
    message: str

    @property
    def marker(self) -> bool:
        """Whether the last line says success."""
        return "IMAGE_URL_DONE" in (self.stdout.strip().splitlines() or [""])[-1]

    def ok(self) -> Self:
        """Itself, since the command had to succeed."""
        assert (self.code, self.marker) == (0, True), self
        return self

    def fails(self, *words: str) -> Self:
        """Itself, since the command had to fail for these reasons."""
        assert (self.code, self.marker) == (1, False), self
        for word in words:
            assert word in self.stderr
        return self


class Target:
    """A loop device full of old data, with the command beside it."""

    def __init__(self, device: str, home: Path, program: Path = COMMAND):
        self.device, self.home, self.program = device, home, program
        self.bootstrap = home / "bootstrap.data"
        self.token = ""

    def authorize(self, keys: str) -> None:
        """Give the rescue an authorized_keys file."""
        path = self.home / ".ssh/authorized_keys"
        path.parent.mkdir(mode=0o700)
        path.write_text(keys)

    def command(self, url: str, bootstrap: str = "", machine: str = "node-1", devices: str = "") -> list[str]:
        """Return the command line, with the bootstrap data in place."""
        self.bootstrap.write_text(bootstrap)
        return [str(self.program), url, str(self.bootstrap), machine, devices or Path(self.device).name]

    def install(self, url: str, bootstrap: str = "", **more: str) -> Outcome:
        done = subprocess.run(
            self.command(url, bootstrap, **more), capture_output=True, text=True, check=False,
            env={"PATH": PATH, "OCI_REGISTRY_AUTH_TOKEN": self.token},
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr, self.message())

    def message(self) -> str:
        """Return the message of output.json."""
        path = self.home / "output.json"
        return json.loads(path.read_text())["message"] if path.exists() else ""

    def read(self, start: int = 0, count: int = -1) -> bytes:
        """Read the device, not what the page cache holds of it."""
        subprocess.run(["blockdev", "--flushbufs", self.device], check=True, env={"PATH": PATH})
        with Path(self.device).open("rb") as stream:
            stream.seek(start, 0 if start >= 0 else 2)
            return stream.read(count)

    def untouched(self) -> bool:
        """Whether the old data is still there, at both ends."""
        return self.read(0, MIB) == OLD and self.read(-MIB) == OLD

    def unbootable(self) -> bool:
        """Whether both ends are zeros."""
        return not any(self.read(0, MIB)) and not any(self.read(-MIB))


@contextmanager
def dirty(home: Path, size: int) -> Iterator[Target]:
    """Give a loop device of so many MiB with old data on it."""
    with tempfile.NamedTemporaryFile(dir=memory(ROOM) or home, prefix="kubenode-disk-") as disk:
        for _mebibyte in range(OLD_MIB):
            disk.write(OLD)
        disk.truncate(size * MIB)
        disk.seek((size - 1) * MIB)
        disk.write(OLD)
        disk.flush()
        with loop(Path(disk.name)) as device:
            yield Target(device, home)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """Give a device larger than every image."""
    with dirty(tmp_path, 1024) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Target]:
    """Give a device of 128 MiB."""
    with dirty(tmp_path, 128) as found:
        yield found


@pytest.fixture(scope="session")
def debianish(tmp_path_factory) -> bytes:
    """Return an image like a cloud image: boot code, an EFI system partition, and an ext4 root with cloud-init."""
    path = tmp_path_factory.mktemp("image") / "disk.raw"
    data = build(path, [Part(1, kind=EFI), Part(60, "ext4", SYSTEM)])
    return b"\xeb\x63" + b"\x90" * 438 + data[440:]


@pytest.fixture(scope="session")
def appliance(tmp_path_factory) -> bytes:
    """Return an image this command does not understand: data of all kinds, and no root file system."""
    path = tmp_path_factory.mktemp("image") / "disk.raw"
    build(path, [Part(20), Part(20)])
    data = bytearray(path.read_bytes())
    data[3 * MIB : 5 * MIB] = hashlib.shake_256(b"noise").digest(2 * MIB)
    data[17 * MIB + 5] = 1
    return bytes(data)
