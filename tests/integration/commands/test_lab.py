# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In a rescue that booted, onto a disk that boots: the system comes up with its name and its bootstrap data."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend, open_backend
from tests.integration.commands.conftest import COMMAND, OCI, ROOTFS_TAR
from tests.integration.commands.image_site import Web
from tests.integration.commands.registry import LOGIN, Front, with_password
from tests.lab.machines.guest import Key, bench

pytestmark = pytest.mark.nspawn


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Backend]:
    """A place for containers."""
    opened = await open_backend("nspawn", "commands", tmp_path / "site")
    yield opened
    await opened.close()


async def upload(one, name: str, data: bytes, mode: str) -> None:
    """Put a file into /root, as the runner's upload does."""
    process = await asyncio.create_subprocess_exec(
        *one.command(f"umask 077; cat > /root/{name}; chmod {mode} /root/{name}"), stdin=-1
    )
    await process.communicate(data)
    assert process.returncode == 0


@pytest.mark.long
async def test_rescue_command_reboot_system(site: Backend, tmp_path: Path) -> None:
    key = Key.make(tmp_path)
    image = images.ensure("debian").files["zst"]
    web = Web(site.listen(8080))
    web.site.files["/debian.zst"] = image.read_bytes()
    web.site.files["/debian.zst.sha256"] = Path(f"{image}.sha256").read_bytes()
    one = bench(site, key, 1)
    await one.start()
    assert await one.answers("hostname") == "rescue"
    # no SSH keys: those that opened the rescue go with the seed
    words = "#cloud-config\nruncmd: [[sh, -c, 'echo seeded > /root/proof']]\n"
    await upload(one, "image-url-command", COMMAND.read_bytes(), "0700")
    await upload(one, "bootstrap.data", words.encode(), "0600")
    done = await one.ssh(f"/root/image-url-command {web.site.url}/debian.zst /root/bootstrap.data web-1 sda")
    web.close()
    assert done.status == 0, done
    assert done.out.splitlines()[-1] == "IMAGE_URL_DONE"
    assert json.loads((await one.ssh("cat /root/output.json")).out)["message"] == "web-1: installed on /dev/sda"
    assert await one.system() == "web-1"
    assert (await one.ssh("cloud-init status --wait")).out.strip().endswith("status: done")
    assert (await one.ssh("cat /root/proof")).out == "seeded\n"
    assert (
        "nocloud" in (await one.ssh("cloud-init query cloud_id platform; cat /run/cloud-init/result.json")).out.lower()
    )
    assert json.loads((await one.ssh("cat /etc/kubenode/installed.json")).out)["machine"] == "web-1"
    assert int((await one.ssh("df --output=size -B1M / | tail -1")).out) > one.hardware.disk_bytes // 2**20 * 0.9


BOOTED = """
cat /etc/hostname; cloud-init status --wait | tail -1; cat /root/proof
findmnt -n -o FSTYPE /; grep -c '^UUID=' /etc/fstab; stat -c %a /usr/bin/sudo
sed -n 's/.*"command": "\\(.*\\)",/\\1/p' /etc/kubenode/installed.json
"""
WORDS = "#cloud-config\nruncmd: [[sh, -c, 'echo seeded > /root/proof']]\n"


async def installed(one, url: str, program: Path, token: str = "") -> list[str]:
    """Run a command in the rescue of a machine, boot what it made, and say what came up."""
    await one.start()
    assert await one.answers("hostname") == "rescue"
    await upload(one, "image-url-command", program.read_bytes(), "0700")
    await upload(one, "bootstrap.data", WORDS.encode(), "0600")
    command = f"OCI_REGISTRY_AUTH_TOKEN={token} /root/image-url-command '{url}' /root/bootstrap.data web-1 sda"
    done = await one.ssh(command)
    assert done.status == 0, done
    assert done.out.splitlines()[-1] == "IMAGE_URL_DONE"
    assert await one.system() == "web-1"
    return (await one.ssh(BOOTED)).out.splitlines()


@pytest.mark.long
async def test_rescue_tarball_reboot_system(site: Backend, tmp_path: Path) -> None:
    image = images.ensure("tarball").files["tarball"]
    web = Web(site.listen(8080))
    web.site.files["/node.tar.zst"] = image.read_bytes()
    web.site.files["/node.tar.zst.sha256"] = Path(f"{image}.sha256").read_bytes()
    one = bench(site, Key.make(tmp_path), 2)
    url = f"{web.site.url}/node.tar.zst#layout=swap:128M,/:ext4"
    assert await installed(one, url, ROOTFS_TAR) == [
        "web-1", "status: done", "seeded", "ext4", "2", "4755", "image-url-command-rootfs-tar",
    ]  # fmt: skip
    web.close()


@pytest.mark.long
async def test_rescue_registry_reboot_system(site: Backend, tmp_path: Path) -> None:
    registry = with_password(tmp_path)
    image = images.ensure("debian").files["zst"].read_bytes()
    there = registry.artifact("node/debian", "amd64", {"disk.raw.zst": image})
    registry.index(
        "node/debian", "v1", {"arm64": registry.artifact("node/debian", "arm64", {"x": b"x"}), "amd64": there}
    )
    front = Front(registry, site.listen(8081))
    front.proxy.faults = [("/blobs/", "none"), ("/blobs/", "cut", len(image) // 2)]
    one = bench(site, Key.make(tmp_path), 3)
    url = f"oci://{front.host}/node/debian:v1#plain-http=yes"
    assert await installed(one, url, OCI, LOGIN) == [
        "web-1", "status: done", "seeded", "ext4", "0", "4755", "image-url-command-oci",
    ]  # fmt: skip
    assert front.proxy.ranges() == [f"bytes={len(image) // 2}-"]
    front.close()
    registry.close()
