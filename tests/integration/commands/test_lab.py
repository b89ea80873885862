# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In a rescue that booted, onto a disk that boots: the system comes up with its name and its bootstrap data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab import images
from lab.machines.site import Site, open_site
from tests.integration.commands.conftest import COMMAND
from tests.integration.commands.web import Web
from tests.lab.machines.guest import FromDisk, Key, bench

pytestmark = pytest.mark.nspawn


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A place for containers."""
    opened = await open_site("nspawn", "commands", tmp_path / "site")
    yield opened
    await opened.close()


async def upload(one, name: str, data: bytes, mode: str) -> None:
    """Put a file into /root, as the runner's upload does."""
    process = await asyncio.create_subprocess_exec(
        *one.command(f"umask 077; cat > /root/{name}; chmod {mode} /root/{name}"), stdin=-1
    )
    await process.communicate(data)
    assert process.returncode == 0


async def test_rescue_command_reboot_system(site: Site, tmp_path: Path) -> None:
    key = Key.make(tmp_path)
    image = images.ensure("debian").files["zst"]
    web = Web(site.listen(8080))
    web.site.files["/debian.zst"] = image.read_bytes()
    web.site.files["/debian.zst.sha256"] = Path(f"{image}.sha256").read_bytes()
    one = bench(site, key, 1)
    await one.machine.create(None)
    await one.machine.power_on()
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
    one.arm(FromDisk())
    await one.ssh("systemctl reboot")
    assert await one.answers("hostname", unless="rescue") == "web-1"
    assert (await one.ssh("cloud-init status --wait")).out.strip().endswith("status: done")
    assert (await one.ssh("cat /root/proof")).out == "seeded\n"
    assert (
        "nocloud" in (await one.ssh("cloud-init query cloud_id platform; cat /run/cloud-init/result.json")).out.lower()
    )
    assert json.loads((await one.ssh("cat /etc/kubenode/installed.json")).out)["machine"] == "web-1"
    assert int((await one.ssh("df --output=size -B1M / | tail -1")).out) > one.hardware.disk_bytes // 2**20 * 0.9
