# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What installimage does to the rescue that it runs in, and what its debug log begins with."""

import re

import pytest

from lab.machines.backend import Backend
from tests.lab.installimage.test_installation import _CONFIG, _RUN, _install, _rescued, _write
from tests.lab.machines.guest import DiskSpec, Key, dedicated

pytestmark = pytest.mark.nspawn
_NVME = (DiskSpec(4 << 30, "nvme"), DiskSpec(1 << 30, "nvme"))


@pytest.mark.long
async def test_the_rescue_takes_the_name_of_the_new_system(backend: Backend, key: Key) -> None:
    one = await _rescued(dedicated(backend, key, 1, _NVME[:1]))
    assert (await one.ssh("hostname")).out == "rescue\n"
    await _write(one, "/root/look", "#!/bin/sh\nssh-keygen -A\necho target-sees $(hostname)", "0755")
    await _write(one, "/root/post-mount", "#!/bin/sh\nhostname >/root/before", "0755")
    config = _CONFIG.replace("HOSTNAME node-1", "HOSTNAME node-1.example.org")
    answer, debug = await _install(one, config, f"{_RUN} -x /root/look")
    assert answer.status == 0, debug
    assert (await one.ssh("cat /root/before")).out == "rescue\n", "not before its step"
    assert (await one.ssh("hostname")).out == "node-1.example.org\n"
    assert "target-sees node-1.example.org" in answer.out
    assert "node-1" in debug
    written = (
        "mount /dev/nvme0n1p1 /mnt && cat /mnt/etc/hostname && grep -c 'node-1.example.org node-1$' /mnt/etc/hosts"
    )
    assert (await one.ssh(f"{written}; umount /mnt")).out.split() == ["node-1", "1"]
    assert await one.system(by_reset=True) == "node-1"


async def test_the_name_stays_when_a_later_step_fails(backend: Backend, key: Key) -> None:
    one = await _rescued(dedicated(backend, key, 1, _NVME[:1]))
    image = "/root/Debian-1200-empty-amd64-base.tar.zst"
    await one.ssh(f"mkdir -p /root/tree/etc; tar --zstd -C /root/tree -cf {image} .")
    answer, debug = await _install(one, re.sub("IMAGE .*", f"IMAGE {image}", _CONFIG))
    assert answer.status == 1
    (failed,) = [line for line in answer.out.splitlines() if "failed" in line]
    assert "Generating ramdisk" in failed, debug
    assert "skipping ed25519 key gen" in debug
    assert (await one.ssh("hostname")).out == "node-1\n"


async def test_debug_txt_begins_with_the_hardware(backend: Backend, key: Key) -> None:
    one = await _rescued(dedicated(backend, key, 1, _NVME))
    answer, debug = await _install(one, _CONFIG.replace("SWRAID 0", "SWRAID 1").replace("nvme0n1", "nvme7n1"))
    assert answer.status == 1
    stamp = re.compile(r"\[\d\d:\d\d:\d\d\] ")
    lines = debug.splitlines()
    assert lines[0] == ""
    assert all(stamp.match(line) for line in lines[1:])
    said = [stamp.sub("", line) for line in lines[1:]]
    begin, clean = said.index("# starting installimage"), said.index("# make clean config")
    assert begin < clean
    report = said[begin + 1 : clean]
    assert report[0] == report[-1] == "-" * 37
    text = "\n".join(line.removeprefix(":   ") for line in report[1:-1])
    assert re.search(r"^Hardware data:$", text, re.MULTILINE)
    assert re.search(r"^CPU1: .+ \(Cores \d+\)$", text, re.MULTILINE)
    assert re.search(r"^Memory: +\d+ MB$", text, re.MULTILINE)
    assert re.search(r"^Disk /dev/nvme0n1: 4 GB \(=> 4 GiB\) doesn't contain", text, re.MULTILINE)
    assert re.search(r"^Total capacity 5 GiB with 2 Disks$", text, re.MULTILINE)
    assert re.search(rf"^MAC: +{one.hardware.mac}$", text, re.MULTILINE)
    assert re.search(rf"^IP: +{re.escape(one.hardware.ipv4)}$", text, re.MULTILINE)
    errors = [line for line in said if line.startswith(":   ERROR: ")]
    assert len(errors) == 1
    assert said.index(errors[0]) > clean
