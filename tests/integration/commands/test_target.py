# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only a disk that is whole, free and large enough is written."""

import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.commands.disks import EFI, LINUX, MIB, PATH, loop, mount, node, sh, table
from tests.waiting import until

pytestmark = pytest.mark.root

#: Runs a program whose clock is twenty times as fast: what it does after a minute of waiting is tested, not the minute.
QUICK = """
import runpy, sys, time
clock = time.monotonic
time.monotonic = lambda: 20 * clock()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def url(web, debianish) -> str:
    web.site.files["/disk"] = debianish
    return f"{web.site.url}/disk#sha256={hashlib.sha256(debianish).hexdigest()}"


def test_mounted_partition(target, url, tmp_path):
    sh("sfdisk", "--quiet", target.device, stdin="label: gpt\nsize=50M\n")
    partition = node(target.device, 1)
    sh("mkfs.ext4", "-q", partition)
    with mount(partition, tmp_path / "used"):
        outcome = target.install(url)
    assert outcome.code == 1
    assert f"mounted on {tmp_path}/used" in outcome.stderr
    assert "this command wrote nothing" in outcome.stderr
    target.install(url).ok()


def test_mounted_in_another_namespace(target, url, tmp_path):
    sh("mkfs.ext4", "-q", target.device)
    script = f"mount {target.device} {tmp_path} && echo ready && exec cat"
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": PATH},
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == b"ready\n"
        done = subprocess.run(
            ["python3", "-c", QUICK, *target.command(url)], capture_output=True, text=True, check=False,
            env={"PATH": PATH},
        )  # fmt: skip
        holder.stdin.close()
    assert done.returncode == 1
    assert "in use (another mount namespace or program)" in done.stderr
    assert "this command wrote nothing" in done.stderr


def test_partition_instead_of_disk(target, url):
    sh("sfdisk", "--quiet", target.device, stdin="label: gpt\nsize=50M\n")
    target.install(url, devices=Path(node(target.device, 1)).name).fails("name the whole disk")


@pytest.mark.parametrize(
    ("devices", "named"),
    [("nosuchdisk", "no such device"), ("null", "not a block device"), ("a b", "exactly one"), (" ", "exactly one")],
)
def test_names_that_are_no_disk(target, url, devices, named):
    target.install(url, devices=devices).fails(named)


def test_read_only_disk(target, url, tmp_path):
    (tmp_path / "ro").write_bytes(bytes(8 * MIB))
    with loop(tmp_path / "ro", "--read-only") as device:
        assert "read-only" in target.install(url, devices=Path(device).name).stderr


@pytest.mark.parametrize("machine", ["", "a b", "-x", "node;reboot"])
def test_machine_names(target, url, machine):
    assert "is not a host name" in target.install(url, machine=machine).stderr
    assert target.untouched()


def test_usage(target):
    done = subprocess.run(target.command("x")[:-1], capture_output=True, text=True, check=False, env={"PATH": PATH})
    assert done.returncode == 2
    assert "usage:" in done.stderr


def leftovers(process) -> list[Path]:
    """Return the folders a run left in /dev."""
    return list(Path("/dev").glob(f".kubenode-{process.pid}-*"))


def start(target, web, url):
    """Start an installation that is in the middle of writing."""
    web.site.faults["/disk"] = [("slow", 0.05)]
    process = subprocess.Popen(
        target.command(url, "#cloud-config\n"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": PATH},
    )
    until(lambda: target.message().startswith("writing"), "the writing", show=target.message)
    return process


def test_sigterm_ends_everything(target, web, url):
    process = start(target, web, url)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 143
    assert "IMAGE_URL_DONE" not in stdout
    assert "SIGTERM" in stderr
    assert target.unbootable()
    assert leftovers(process) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_even_the_last_step_but_one_leaves_nothing_that_boots(target, url, tmp_path, number):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "resize2fs").write_text("#!/bin/sh\necho $$ > $0.pid\nexec sleep infinity\n")
    (tools / "resize2fs").chmod(0o755)
    process = subprocess.Popen(target.command(url, "#cloud-config\n"), env={"PATH": f"{tools}:{PATH}"}, stderr=-3)
    reported = tools / "resize2fs.pid"
    child = int(until(lambda: reported.exists() and reported.read_text(), "the last step but one"))
    process.send_signal(number)
    process.wait(180)
    if number == signal.SIGTERM:
        assert process.returncode == 143
        until(lambda: not Path(f"/proc/{child}").exists(), "the end of its child")
        assert target.unbootable()
    else:
        os.kill(child, signal.SIGKILL)
        leftovers(process)[0].rmdir()  # empty: what was in it went with the mount namespace
        assert not any(target.read(0, 440))
        assert [one["type"] for one in table(target.device)["partitions"]] == [LINUX]
    target.install(url, "#cloud-config\n").ok()
    assert target.read(0, 440) == b"\xeb\x63" + b"\x90" * 438
    assert [one["type"] for one in table(target.device)["partitions"]] == [EFI, LINUX]


def test_a_power_cut_never_leaves_half_an_image_that_boots(target, web, url):
    process = start(target, web, url)
    process.kill()
    process.communicate(timeout=180)
    leftovers(process)[0].rmdir()
    assert target.unbootable()
    target.install(url, "#cloud-config\n").ok()
