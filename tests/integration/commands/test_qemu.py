# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root file system from a tarball, started by the boot loader that the command installed for UEFI."""

import hashlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab import images
from lab.machines.backend import Backend, open_backend
from tests.integration.commands.conftest import ROOTFS_TAR
from tests.integration.commands.disks import sh
from tests.integration.commands.image_site import Web
from tests.integration.commands.trees import pack
from tests.lab.machines.guest import DiskSpec, FromDisk, Key, dedicated

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(7200)]
SLOW = 1800  # seconds until it hangs: without KVM, everything takes its time
#: Words that may be said again, since a connection may fail on a busy host.
INSTALL = """cd /root; [ -d begun ] || {{
curl -sf {web}/command -o image-url-command && : >bootstrap.data && chmod 0700 image-url-command && mkdir begun &&
{{ setsid sh -c "./image-url-command '{url}' bootstrap.data web-1 nvme0n1; echo \\$? >n; mv n code" >log 2>&1 & }}
}}; while [ -d begun ] && ! [ -e code ]; do sleep 3; done; cat code"""  # waiting is cheap, a login is not
LOG = "cat /root/log"
INIT = """#!/bin/sh
mount -t devtmpfs dev /dev 2>/dev/null
mount -t proc proc /proc 2>/dev/null
echo "started $(cat /etc/hostname) by $(cut -d' ' -f1 /proc/cmdline) from $(findmnt -no SOURCE /)" >/dev/console
while :; do sleep 1000; done
"""
#: What of the lab's tarball a kernel, GRUB's own programs and a script for an init need.
KEPT = (
    "bin", "sbin", "lib", "lib64", "boot", "etc/grub.d", "etc/default", "etc/passwd", "etc/group", "usr/bin",
    "usr/sbin", "usr/lib/os-release", "usr/lib/grub", "usr/share/grub", "usr/lib64", "usr/lib/x86_64-linux-gnu",
)  # fmt: skip


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Backend]:
    """A place for virtual machines."""
    opened = await open_backend("qemu", "commands-qemu", tmp_path / "site")
    yield opened
    await opened.close()


def lean(image: Path, tree: Path) -> bytes:
    """A system of few files: an emulated processor takes its time for each."""
    tree.mkdir()
    without = [f"--exclude=./usr/lib/x86_64-linux-gnu/{one}" for one in ("perl*", "gconv")]
    sh("tar", "--extract", "--file", image, "--directory", tree, *without, *(f"./{one}" for one in KEPT))
    init = tree / "usr/lib/systemd/systemd"
    init.parent.mkdir()
    init.write_text(INIT)
    init.chmod(0o755)
    (tree / "usr/sbin/init").unlink(missing_ok=True)
    (tree / "usr/sbin/init").symlink_to("/usr/lib/systemd/systemd")
    packed = pack(tree, "--format=gnu")
    sh("rm", "-r", tree)
    return subprocess.run(["zstd", "-1", "-q"], input=packed, capture_output=True, check=True).stdout


async def test_a_tarball_boots_by_uefi(site: Backend, tmp_path: Path) -> None:
    web = Web(site.listen(8080))
    image = lean(images.ensure("tarball").files["tarball"], tmp_path / "tree")
    web.site.files |= {"/node.tar.zst": image, "/command": ROOTFS_TAR.read_bytes()}
    one = dedicated(site, Key.make(tmp_path), 1, (DiskSpec(3 << 30, "nvme", "S1"),), uefi=True)
    await one.start()
    assert await one.answers("hostname", limit=SLOW) == "rescue"
    digest = hashlib.sha256(image).hexdigest()
    url = f"{web.site.url}/node.tar.zst#sha256={digest}&layout=/boot:ext4:512M,/:ext4"
    assert await one.answers(INSTALL.format(web=web.site.url, url=url), limit=SLOW) == "0", await one.answers(LOG)
    assert "boot loader: GRUB for UEFI and BIOS" in await one.answers(LOG)
    web.close()
    one.arm(FromDisk())
    await one.machine.ctrl_alt_del()
    await one.says("started web-1 by BOOT_IMAGE=/vmlinuz-", limit=SLOW)
    await one.says("from /dev/nvme0n1p4", limit=SLOW)
