# Copyright (c) 2026 kubenode.provision authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image files: written, recognised, and repaired when they were changed."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import stat

import pytest

from ansible_collections.kubenode.provision.plugins.module_utils._liveimage import cpio, hosts, iso
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.agent import AgentInputs
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.image_error import ImageError
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.kargs import Edit
from ansible_collections.kubenode.provision.plugins.module_utils._liveimage.overlay import open_overlay
from tests.unit.liveimage import maker
from tests.unit.liveimage.module.building import AGENT, NETWORK, Workshop, state

HOST = {"name": "web-1", "network": NETWORK, "kernel_arguments": {"append": ["console=ttyS0"]}}


def image(workshop: Workshop, name: str = "web-1.iso"):
    return workshop.dest / name


def test_the_file_is_the_host_s_overlay_byte_for_byte(workshop):
    result = workshop.build(HOST)["web-1"]
    assert (result["failed"], result["changed"]) == (False, True)
    agent = AgentInputs(agent_image=AGENT["agent_image"], ironic_urls=tuple(AGENT["ironic_urls"]))
    host = hosts.HostInputs("web-1", network=NETWORK, arguments=Edit(append=("console=ttyS0",)))
    expected = hosts.iso_overlay(iso.inspect(str(workshop.base)), hosts.build(agent, host), host)
    with open_overlay(expected) as file:
        assert image(workshop).read_bytes() == file.read()
    entry = result["images"][0]
    assert (entry["size"], entry["etag"]) == (expected.size, expected.etag())
    assert result["area_bytes"] == maker.AREA
    assert result["ignition_bytes"] == len(iso.inspect(entry["path"]).embedded["config.ign"])


def test_a_second_run_changes_nothing_and_reads_nothing(workshop, monkeypatch):
    workshop.build(HOST)
    before = state(image(workshop))
    opened = []
    real = open

    def spy(path, *rest, **more):
        opened.append(str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr("builtins.open", spy)
    again = workshop.build(HOST)["web-1"]
    assert (again["changed"], again["failed"], workshop.diff) == (False, False, [])
    assert state(image(workshop)) == before
    assert str(workshop.base) in opened  # the spy sees what is opened
    assert str(image(workshop)) not in opened


def test_a_byte_that_was_changed_is_repaired(workshop):
    workshop.build(HOST)
    good, times = image(workshop).read_bytes(), image(workshop).stat()
    with image(workshop).open("r+b") as file:
        file.seek(400_000)
        file.write(bytes([good[400_000] ^ 1]))
    os.utime(image(workshop), ns=(times.st_atime_ns, times.st_mtime_ns))  # size, date and inode as before
    assert workshop.build(HOST)["web-1"]["changed"]
    assert image(workshop).read_bytes() == good


def test_a_copy_of_the_same_bytes_is_recognised_and_remembered(workshop):
    workshop.build(HOST)
    good = image(workshop).read_bytes()
    image(workshop).unlink()
    image(workshop).write_bytes(good)
    image(workshop).chmod(0o600)
    assert not workshop.build(HOST)["web-1"]["changed"]
    record = json.loads((workshop.dest / ".web-1.iso.kubenode.json").read_text())
    assert record["file"][1] == image(workshop).stat().st_ino


@pytest.mark.parametrize("harm", ["{}", "not json", "[1]", '{"kubenode_record": 1, "etag": 3, "file": null}'])
def test_a_record_that_says_nothing_is_no_proof(workshop, harm):
    workshop.build(HOST)
    (workshop.dest / ".web-1.iso.kubenode.json").write_text(harm)
    assert not workshop.build(HOST)["web-1"]["changed"]  # the bytes are the proof
    with image(workshop).open("r+b") as file:
        file.write(b"X")
    (workshop.dest / ".web-1.iso.kubenode.json").write_text(harm)
    assert workshop.build(HOST)["web-1"]["changed"]


def test_a_base_that_was_only_touched_changes_nothing(workshop):
    workshop.build(HOST)
    os.utime(workshop.base, (1, 1))
    assert not workshop.build(HOST)["web-1"]["changed"]


def test_other_input_is_another_image_and_a_difference_that_says_so(workshop):
    workshop.build(HOST)
    result = workshop.build({**HOST, "kernel_arguments": {"append": ["console=ttyS1"]}})["web-1"]
    assert result["changed"]
    (diff,) = workshop.diff
    assert diff["before_header"].endswith("web-1.iso (kernel arguments)")
    assert ("console=ttyS0" in diff["before"], "console=ttyS1" in diff["after"]) == (True, True)


def test_permissions_are_put_right_without_writing_the_image(workshop):
    workshop.build(HOST)
    inode = image(workshop).stat().st_ino
    image(workshop).chmod(0o644)
    result = workshop.build(HOST)["web-1"]
    assert result["changed"]
    assert stat.S_IMODE(image(workshop).stat().st_mode) == 0o600
    assert image(workshop).stat().st_ino == inode
    assert not workshop.build(HOST)["web-1"]["changed"]


def test_what_is_written_is_its_owner_s_alone(workshop):
    workshop.build(HOST, outputs=["iso", "pxe"], publish_url="http://images.example.com")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in workshop.dest.iterdir()}
    assert (stat.S_IMODE(workshop.dest.stat().st_mode), modes) == (0o700, {0o600})


def test_check_mode_writes_nothing_and_returns_the_same(workshop):
    planned = workshop.build(HOST, check=True)["web-1"]
    diff = workshop.diff
    assert workshop.written() == []
    really = workshop.build(HOST)["web-1"]
    assert (planned["images"], diff) == (really["images"], workshop.diff)
    assert planned["msg"] == "would be written: web-1.iso"


def test_verify_full_reads_the_file_again(workshop):
    workshop.build(HOST)
    record = workshop.dest / ".web-1.iso.kubenode.json"
    with image(workshop).open("r+b") as file:
        file.write(b"X")
    found = image(workshop).stat()
    stamp = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    record.write_text(json.dumps({**json.loads(record.read_text()), "file": stamp}))  # a record that lies
    assert not workshop.build(HOST)["web-1"]["changed"]
    assert workshop.build(HOST, verify="full")["web-1"]["changed"]
    assert image(workshop).read_bytes()[0] != ord("X")


def test_the_base_is_never_written_over(workshop):
    before = workshop.base.read_bytes()
    result = workshop.build({"name": "coreos"}, dest=str(workshop.folder))["coreos"]
    assert result["msg"].endswith("is the base itself and is not written over")
    assert workshop.base.read_bytes() == before


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_target_that_is_no_file_is_refused(workshop, kind):
    workshop.dest.mkdir()
    if kind == "folder":
        image(workshop).mkdir()
    else:
        image(workshop).symlink_to(__file__)
    before = workshop.base.read_bytes()
    result = workshop.build(HOST)["web-1"]
    assert result["failed"]
    assert "is a folder, a link or a device" in result["msg"]
    assert workshop.base.read_bytes() == before


def test_absent_removes_what_was_written_for_the_host_and_nothing_else(workshop):
    workshop.build(HOST, {"name": "web-2"})
    (workshop.dest / "web-1.initramfs").write_bytes(b"of another program")
    gone = workshop.build({"name": "web-1", "state": "absent"}, check=True)["web-1"]
    assert (gone["changed"], image(workshop).exists()) == (True, True)
    gone = workshop.build({"name": "web-1", "state": "absent"})["web-1"]
    assert (gone["changed"], gone["msg"]) == (True, "removed: web-1.iso")
    assert workshop.written() == ["images/.web-2.iso.kubenode.json", "images/web-1.initramfs", "images/web-2.iso"]
    assert not workshop.build({"name": "web-1", "state": "absent"})["web-1"]["changed"]


def test_absent_of_one_host_leaves_an_image_of_another_with_such_a_name(workshop):
    workshop.build({"name": "web", "outputs": ["minimal_iso"]}, rootfs_url="http://images.example.com/rootfs.img")
    assert (workshop.dest / "web-minimal.iso").exists()
    assert not workshop.build({"name": "web-minimal", "state": "absent"})["web-minimal"]["changed"]
    assert (workshop.dest / "web-minimal.iso").exists()


def test_a_write_that_fails_leaves_the_old_image(workshop, monkeypatch):
    def full(_handle):
        raise OSError(28, "No space left on device")

    workshop.build(HOST)
    before, there = image(workshop).read_bytes(), workshop.written()
    monkeypatch.setattr(os, "fsync", full)
    result = workshop.build({**HOST, "hostname": "other"})["web-1"]
    assert (result["failed"], "No space left" in result["msg"]) == (True, True)
    assert image(workshop).read_bytes() == before
    assert workshop.written() == there


def test_a_customised_base_is_refused_unless_forced(workshop):
    workshop.build(HOST)
    (workshop.folder / "used.iso").write_bytes(image(workshop).read_bytes())
    result = workshop.build({"name": "web-2"}, base_iso=str(workshop.folder / "used.iso"))["web-2"]
    assert "is customised already (config.ign, etc/coreos-firstboot-network/eno1.nmconnection)" in result["msg"]
    assert not (workshop.dest / "web-2.iso").exists()
    forced = workshop.build({"name": "web-2"}, base_iso=str(workshop.folder / "used.iso"), force=True)["web-2"]
    assert not forced["failed"]
    assert list(iso.inspect(str(workshop.dest / "web-2.iso")).embedded) == ["config.ign"]


def test_too_large_is_refused_with_the_overrun_and_fits_when_the_area_is_enlarged(workshop):
    big = {"path": "/opt/big", "content_base64": base64.b64encode(random.Random(1).randbytes(300_000)).decode()}
    host = {"name": "web-1", "files": [big]}
    result = workshop.build(host, {"name": "web-2"})
    packed, overrun = map(int, re.findall(r"(\d+) (?:bytes|more)", result["web-1"]["msg"])[:2])
    assert overrun == packed - maker.AREA
    assert packed > 300_000
    assert [one for one in workshop.written() if "web-1" in one] == []
    assert not result["web-2"]["failed"]  # the other host's image is there
    done = workshop.build(host, enlarge=True)["web-1"]
    assert not done["failed"]
    enlarged = iso.inspect(done["images"][0]["path"])
    assert enlarged.area.extent.length > maker.AREA
    assert len(enlarged.embedded["config.ign"]) == done["ignition_bytes"]


def test_outputs_share_kernel_and_rootfs_and_point_at_each_other(workshop):
    results = workshop.build(
        {"name": "web-1"}, {"name": "web-2", "kernel_arguments": {"append": ["console=ttyS0"]}},
        outputs=["minimal_iso", "pxe"], publish_url="http://images.example.com:8084/",
    )  # fmt: skip
    assert sorted(one["name"] for one in results[""]["images"]) == ["live-x86_64.kernel", "live-x86_64.rootfs"]
    files = maker.contents(maker.Layout())
    assert (workshop.dest / "live-x86_64.kernel").read_bytes() == files["/images/pxeboot/vmlinuz"]
    assert (workshop.dest / "live-x86_64.rootfs").read_bytes() == files["/images/pxeboot/rootfs.img"]
    initramfs = (workshop.dest / "web-1.initramfs").read_bytes()
    plain = files["/images/pxeboot/initrd.img"]
    assert initramfs.startswith(plain)
    assert [member.name for member in cpio.members(initramfs[len(plain) :])] == ["config.ign"]
    assert (workshop.dest / "web-2.ipxe").read_text().splitlines() == [
        "#!ipxe",
        "echo Live image of web-2",
        "kernel --name kernel http://images.example.com:8084/live-x86_64.kernel initrd=initrd "
        "coreos.live.rootfs_url=http://images.example.com:8084/live-x86_64.rootfs ignition.firstboot "
        "ignition.platform.id=metal console=ttyS0",
        "initrd --name initrd http://images.example.com:8084/web-2.initramfs",
        "boot",
    ]
    small = iso.inspect(str(workshop.dest / "web-1-minimal.iso"))
    assert small.kernel_arguments.current.endswith(
        "coreos.live.rootfs_url=http://images.example.com:8084/live-x86_64.rootfs"
    )
    assert list(small.embedded) == ["config.ign"]
    assert results["web-1"]["urls"]["ipxe"] == "http://images.example.com:8084/web-1.ipxe"


def test_a_base_initramfs_that_has_an_ignition_already_is_refused(workshop):
    workshop.build({"name": "web-1"}, outputs=["initramfs"])
    used = workshop.folder / "used.initramfs"
    used.write_bytes(b"070701" + (workshop.dest / "web-1.initramfs").read_bytes()[6:])
    result = workshop.build({"name": "web-2"}, outputs=["initramfs"], base_initramfs=str(used))["web-2"]
    assert "is customised already (config.ign)" in result["msg"]
    assert not workshop.build({"name": "web-2"}, outputs=["initramfs"], base_initramfs=str(used), force=True)["web-2"][
        "failed"
    ]


def test_an_architecture_without_a_base_is_that_host_s_error(workshop):
    results = workshop.build({"name": "web-1"}, {"name": "arm-1", "architecture": "arm64"})
    assert not results["web-1"]["failed"]
    assert "there is no file for architecture arm64" in results["arm-1"]["msg"]
    maker.make(workshop.folder / "coreos_aarch64.iso", maker.Layout(rootfs=200_000))
    results = workshop.build({"name": "arm-1", "architecture": "arm64"})
    assert results["arm-1"]["images"][0]["size"] != workshop.base.stat().st_size


def test_no_error_class_of_a_library_comes_out(workshop):
    workshop.base.write_bytes(workshop.base.read_bytes()[:300_000])
    result = workshop.build(HOST)["web-1"]
    assert "truncated" in result["msg"]
    with pytest.raises(ImageError, match="dest"):
        workshop.build(HOST, dest="/nowhere/at/all")
